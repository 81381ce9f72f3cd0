"""The random numbers that members draw while they train, such as dropout's: every member has a stream of its own.

A loop lends torch's global generators to one member after the other. A batched forward pass takes each random operation
on [members, …] apart and draws every member's share from its own stream. Tensors are filled in the order of their
indices, however they lie in memory. So a member's noise depends neither on its neighbours nor on the way its stack is
computed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Generator, Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class MemberNoise:
    """One stream for each member: a generator on the CPU, and one on the device if that is another."""

    def __init__(self, seeds: Sequence[int], device: torch.device, scattered: bool = True) -> None:
        self.shared = [torch.default_generator]
        if device.type != "cpu":
            self.shared.append(torch.get_device_module(device).default_generators[device.index or 0])
        self.streams = [[Generator(one.device).manual_seed(seed) for one in self.shared] for seed in seeds]
        self.scattered = scattered  # whether an ordinary network may draw into tensors that are not contiguous

    @contextmanager
    def of(self, member: int) -> Iterator[None]:
        """What is drawn in here is the member's."""
        with self._lent_to(member), _Draws(_draw) if self.scattered else nullcontext():
            yield

    def batched(self) -> TorchDispatchMode:
        """In here, random operations on [members, …] draw each member's share from its own stream."""
        return _Draws(self.draw_apart)

    @contextmanager
    def _lent_to(self, member: int) -> Iterator[None]:
        before = [shared.get_state() for shared in self.shared]
        for shared, own in zip(self.shared, self.streams[member], strict=True):
            shared.set_state(own.get_state())
        try:
            yield
        finally:
            for shared, own, state in zip(self.shared, self.streams[member], before, strict=True):
                own.set_state(shared.get_state())
                shared.set_state(state)

    def draw(self, member: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A random operation, done for a member."""
        if any(argument.name == "generator" for argument in func._schema.arguments):
            own = next(g for g in self.streams[member] if g.device.type == args[0].device.type)
            return _draw(func, args, kwargs | {"generator": own})
        with self._lent_to(member):
            return _draw(func, args, kwargs)

    def draw_apart(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A random operation on [members, …], done member by member."""
        members = len(self.streams)
        if not args or not _led_by(args[0], members):
            raise RuntimeError(f"vmap cannot tell members apart in {func}")
        found = []
        for member in range(members):
            own = tuple(value[member] if _led_by(value, members) else value for value in args)
            found.append(self.draw(member, func, own, kwargs))
        if func._schema.is_mutable:  # every member's share of the first argument was filled
            return args[0]
        if isinstance(found[0], tuple):
            return tuple(torch.stack(column) for column in zip(*found, strict=True))
        return torch.stack(found)

    def state_dict(self) -> dict[str, Any]:
        """Where every stream is."""
        return {"streams": [[own.get_state() for own in stream] for stream in self.streams]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        for stream, saved in zip(self.streams, state["streams"], strict=True):
            for own, value in zip(stream, saved, strict=True):
                own.set_state(value)


Draw = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
"""Does a random operation, given its positional and its named arguments."""


class _Draws(TorchDispatchMode):
    """Random operations are done by `draw`."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.draw = draw

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            return self.draw(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


def _led_by(value: Any, members: int) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0 and len(value) == members


def _draw(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    own = tuple(value.contiguous() if isinstance(value, Tensor) else value for value in args)
    found = func(*own, **kwargs)
    if func._schema.is_mutable and own[0] is not args[0]:
        return args[0].copy_(own[0])
    return found


def seeded(make: Callable[[], Any], seed: int) -> Any:
    """What `make` returns when torch's global generators begin at this seed; afterwards they are as they were."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make()

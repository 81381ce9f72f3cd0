"""The random numbers that members draw while they train, such as dropout's: every member has a stream of its own.

A loop lends torch's global generators to one member after the other. A batched forward pass takes each random operation
on [members, …] apart and draws every member's share from its own stream. Tensors are filled in the order of their
indices, however they lie in memory. So a member's noise depends neither on its neighbours nor on the way its stack is
computed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class MemberNoise:
    """One stream for each member; a stream is the state of torch's global generators, on the CPU and on the device."""

    def __init__(self, seeds: Sequence[int], device: torch.device) -> None:
        self.modules: list[Any] = [torch]
        if device.type != "cpu":
            self.modules.append(torch.get_device_module(device))
        self.streams: list[list[Tensor]] = []
        for seed in seeds:
            with torch.random.fork_rng(device_type="cuda" if device.type == "cpu" else device.type):
                torch.manual_seed(seed)
                self.streams.append(self._read())

    @contextmanager
    def of(self, member: int) -> Iterator[None]:
        """What is drawn in here is the member's."""
        with self._lent_to(member), _InOrder():
            yield

    def batched(self) -> TorchDispatchMode:
        """In here, random operations on [members, …] draw each member's share from its own stream."""
        return _TakenApart(self)

    @contextmanager
    def _lent_to(self, member: int) -> Iterator[None]:
        before = self._read()
        self._write(self.streams[member])
        try:
            yield
        finally:
            self.streams[member] = self._read()
            self._write(before)

    def state_dict(self) -> dict[str, Any]:
        """Where every stream is."""
        return {"streams": [list(stream) for stream in self.streams]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.streams = [list(stream) for stream in state["streams"]]

    def _read(self) -> list[Tensor]:
        return [module.get_rng_state() for module in self.modules]

    def _write(self, stream: Sequence[Tensor]) -> None:
        for module, state in zip(self.modules, stream, strict=True):
            module.set_rng_state(state)


class _InOrder(TorchDispatchMode):
    """Random operations work on contiguous tensors."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            return _in_order(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


class _TakenApart(TorchDispatchMode):
    """Random operations are done member by member."""

    def __init__(self, noise: MemberNoise) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.noise = noise

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **(kwargs or {}))
        members = len(self.noise.streams)
        if not _led_by(args[0], members):
            raise NotImplementedError(f"{func} draws random numbers that cannot be told apart by member")
        found = []
        for member in range(members):
            with self.noise._lent_to(member):
                own = tuple(value[member] if _led_by(value, members) else value for value in args)
                found.append(_in_order(func, own, kwargs or {}))
        if func._schema.is_mutable:  # every member's share of the first argument was filled
            return args[0]
        if isinstance(found[0], tuple):
            return tuple(torch.stack(column) for column in zip(*found, strict=True))
        return torch.stack(found)


def _led_by(value: Any, members: int) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0 and len(value) == members


def _in_order(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
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

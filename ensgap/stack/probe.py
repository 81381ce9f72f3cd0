"""What is looked at before a network of someone else's is trained: what it takes, returns, draws and keeps."""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from ensgap.errors import UserError
from ensgap.stack.noise import seeded
from ensgap.stack.stack import call_member


@dataclass(frozen=True)
class Probe:
    """What a few forward passes of one member show."""

    flops: float = math.inf
    """Floating-point operations in a batch's forward pass, for each of torch's operations."""
    random: bool = True
    """Whether it draws random numbers in training."""
    scattered: bool = True
    """Whether it draws them into tensors that are not contiguous."""
    keeps: str | None = None
    """What it changes from pass to pass that is no buffer."""
    own_backward: bool = True
    """Whether it has an autograd function written in Python, of which a trace would see the forward pass only."""


def probe(member: nn.Module, example: Any, outputs: int | None) -> Probe:
    """Run a member, which is not needed afterwards, on an example batch; what cannot be trained is a clear error."""
    member.eval()
    _check_output(_output(member, example, 0), example, outputs)
    first, again, other = (_output(member, example, seed) for seed in (0, 0, 1))
    if close(first, again) and not close(first, other):
        raise UserError(
            "The network's predictions in evaluation mode are random: write nn.Dropout, or "
            "F.dropout(x, p, training=self.training), so that it predicts the same each time."
        )
    member.train()
    state = {name: value.clone() for name, value in member.state_dict().items()}
    first, before = _restored(member, state, example), _attributes(member)
    again, after = _restored(member, state, example), _attributes(member)
    changed = [name for name, value in after.items() if not _equal(before.get(name), value)]
    if not changed and not close(first, again):
        changed = ["something outside it"]
    with _Watch() as watch, FlopCounterMode(display=False) as counter:
        _restored(member, state, example)
    flops = counter.get_total_flops() / max(1, watch.operations)
    keeps = changed[0] if changed else None
    member.load_state_dict(state)
    with_graph = seeded(lambda: call_member(member, example), 0)
    return Probe(flops, watch.random, watch.scattered, keeps, _own_backward(with_graph))


def has_hooks(member: nn.Module) -> bool:
    """Whether modules or parameters have any; parameters lose them in a copy."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    owners = [*member.modules(), *member.parameters()]
    return any(getattr(owner, kind, None) for owner in owners for kind in kinds)


def _own_backward(outputs: Tensor) -> bool:
    """Whether a function that is defined in Python is in the graph behind these."""
    seen: set[Any] = set()
    ahead: list[Any] = [outputs.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is not None and node not in seen:
            if isinstance(node, torch.autograd.function.BackwardCFunction):
                return True
            seen.add(node)
            ahead.extend(before for before, _ in node.next_functions)
    return False


class _Watch(TorchDispatchMode):
    """Looks at torch's operations as they are done."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations, self.random, self.scattered = 0, False, False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.operations += not func.is_view
        if torch.Tag.nondeterministic_seeded in func.tags:
            self.random = True
            self.scattered |= not all(value.is_contiguous() for value in args if isinstance(value, Tensor))
        return func(*args, **(kwargs or {}))


def _output(network: nn.Module, example: Any, seed: int) -> Any:
    try:
        with torch.no_grad():
            return seeded(lambda: call_member(network, example), seed)
    except Exception as error:
        raise UserError(
            f"The network cannot take a batch of {_shape(example)}: {type(error).__name__}: {line(error)}"
        ) from error


def _restored(network: nn.Module, state: Mapping[str, Tensor], example: Any) -> Any:
    network.load_state_dict(state)
    return _output(network, example, 0)


def _check_output(found: Any, example: Any, outputs: int | None) -> None:
    if not isinstance(found, Tensor):
        raise UserError(
            f"The network returns a {type(found).__name__}, but must return one tensor [batch, outputs]: wrap it in a "
            "module whose forward returns the logits only."
        )
    rows = len(example) if isinstance(example, Tensor) else None
    if found.dim() != 2 or (rows is not None and len(found) != rows):
        raise UserError(
            f"The network's output must be [batch, outputs], however a batch of {_shape(example)} gave "
            f"{tuple(found.shape)}."
        )
    if outputs is not None and found.shape[1] != outputs:
        raise UserError(
            f"The network's output is {found.shape[1]} wide, but the task needs {outputs}: change its last layer."
        )
    if not (found.dtype.is_floating_point and found.isfinite().all()):
        raise UserError("The network's output must be finite floating-point numbers, however it has others.")


def _attributes(network: nn.Module) -> dict[str, Any]:
    """Everything its modules keep that is no parameter, no saved buffer and no module."""
    saved = network.state_dict().keys()
    found: dict[str, Any] = {n: b.clone() for n, b in network.named_buffers() if n not in saved}
    every = vars(nn.Module()).keys()  # what any module has
    for path, module in network.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, Tensor):
                found[f"{path}.{name}".strip(".")] = value.detach().clone()
            elif isinstance(value, bool | int | float | str | list | dict | tuple) and name not in every:
                found[f"{path}.{name}".strip(".")] = copy.copy(value)
    return found


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and bool(torch.equal(a, b))
    try:
        return bool(a == b)
    except Exception:  # what cannot be compared, such as lists of tensors, is not judged
        return True


def close(a: Tensor, b: Tensor, tolerance: float = 1e-5, scale: float | None = None) -> bool:
    """Whether two tensors agree, relative to the scale (by default the second's own)."""
    if a.shape != b.shape:
        return False
    if not b.is_floating_point():
        return bool(torch.equal(a, b))
    scale = largest(b) if scale is None else scale
    return bool(torch.allclose(a, b, rtol=tolerance, atol=tolerance * scale))


def largest(value: Tensor) -> float:
    """The largest magnitude in a tensor."""
    return float(value.abs().max()) if value.numel() else 0.0


def _shape(example: Any) -> str:
    return f"shape {tuple(example.shape)}" if isinstance(example, Tensor) else f"type {type(example).__name__}"


def line(error: Exception) -> str:
    """The first line of what it says."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")

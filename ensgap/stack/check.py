"""What is looked at before a network of someone else's is trained: what it returns, and that a stack is its loop."""

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ensgap.errors import UserError
from ensgap.stack.noise import MemberNoise, seeded
from ensgap.stack.stack import call_member, trained_parameters

ROWS = 4
"""How many rows of the example the check looks at: batch norm needs two."""


@dataclass(frozen=True)
class Probe:
    """What one forward pass in each mode shows."""

    random: bool
    """Whether it draws random numbers in training."""
    keeps: str | None
    """A Python attribute that it changes from pass to pass."""


def probe(member: nn.Module, example: Any, outputs: int | None) -> Probe:
    """Run a member, which is not needed afterwards, on an example batch; what cannot be trained is a clear error."""
    member.eval()
    _check_output(_output(member, example, 0), example, outputs)
    first, again, other = (_output(member, example, seed) for seed in (0, 0, 1))
    if _close(first, again) and not _close(first, other):
        raise UserError(
            "The network's predictions in evaluation mode are random: write nn.Dropout, or "
            "F.dropout(x, p, training=self.training), so that it predicts the same each time."
        )
    member.train()
    state = {name: value.clone() for name, value in member.state_dict().items()}
    first, before = _restored(member, state, example, 0), _attributes(member)
    again, after = _restored(member, state, example, 0), _attributes(member)
    random = not _close(again, _restored(member, state, example, 1))
    changed = [name for name, value in after.items() if not _equal(before.get(name), value)]
    if not changed and not _close(first, again):
        changed = ["something outside it"]
    return Probe(random, changed[0] if changed else None)


def _output(network: nn.Module, example: Any, seed: int) -> Any:
    try:
        with torch.no_grad():
            return seeded(lambda: call_member(network, example), seed)
    except Exception as error:
        raise UserError(
            f"The network cannot take a batch of {_shape(example)}: {type(error).__name__}: {line(error)}"
        ) from error


def _restored(network: nn.Module, state: Mapping[str, Tensor], example: Any, seed: int) -> Any:
    network.load_state_dict(state)
    return _output(network, example, seed)


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
    if not found.dtype.is_floating_point:
        raise UserError(f"The network must return floating-point numbers, however: {found.dtype}.")


def _attributes(network: nn.Module) -> dict[str, Any]:
    """Everything its modules keep that is no parameter, no saved buffer and no module."""
    saved = network.state_dict().keys()
    found: dict[str, Any] = {n: b.clone() for n, b in network.named_buffers() if n not in saved}
    for path, module in network.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, Tensor):
                found[f"{path}.{name}".strip(".")] = value.detach().clone()
            elif isinstance(value, bool | int | float | str | list | dict | tuple) and name[0] != "_":
                found[f"{path}.{name}".strip(".")] = copy.copy(value)
    return found


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and bool(torch.equal(a, b))
    try:
        return bool(a == b)
    except Exception:  # what cannot be compared, such as lists of tensors, is not judged
        return True


def disagreement(
    make: Callable[[Sequence[nn.Module]], nn.Module], pair: Sequence[nn.Module], example: Tensor, random: bool
) -> str | None:
    """Why a batched network of these two members is not their loop, or nothing.

    On a few rows, in double precision where the network can: outputs, gradients and buffers of two training passes, and
    the outputs in evaluation mode.
    """
    rows = example[:ROWS]
    inputs = torch.stack([rows, rows.flip(0)])  # [2, batch, …]
    pair, inputs, tolerance = _in_double(pair, inputs)
    noises = [MemberNoise((0, 1), inputs.device) if random else None for _ in range(2)]
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = _passes_batched(make(pair), inputs, noises[0])
        missing = [str(w.message).partition("batching rule for ")[2] for w in caught]
        if any(missing):
            return f"vmap has no batching rule for {next(filter(None, missing)).partition('. ')[0]}"
        expected = _passes_loop(pair, inputs, noises[1])
    except Exception as error:
        return line(error)
    kinds = {name.split()[0] for name in expected}  # gradients have one scale: that of a bias before a batch norm is 0
    scale = {kind: max(_largest(v) for name, v in expected.items() if name.split()[0] == kind) for kind in kinds}
    for name, value in expected.items():
        if not _close(found[name], value, tolerance, scale[name.split()[0]]):
            return f"its {name} would differ from a loop's"
    return None


def _in_double(pair: Sequence[nn.Module], inputs: Tensor) -> tuple[Sequence[nn.Module], Tensor, float]:
    """Copies and the tolerance to compare them with; single precision for networks that insist on it."""
    double = inputs.double() if inputs.is_floating_point() else inputs
    try:
        with torch.no_grad():
            call_member(copy.deepcopy(pair[0]).double().eval(), double[0])
    except Exception:
        return [copy.deepcopy(member) for member in pair], inputs, 1e-3
    return [copy.deepcopy(member).double() for member in pair], double, 1e-7


def _passes_batched(network: nn.Module, inputs: Tensor, noise: MemberNoise | None) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    network.train()
    for n in ("first", "second"):
        with noise.batched() if noise else nullcontext():
            outputs = network(inputs)
        found[f"outputs in the {n} training pass"] = outputs.detach()
        state = network.state_dict(keep_vars=True)
        found |= _gradients(outputs, state, trained_parameters(network))
        found |= {f"buffer {name}": v.clone() for name, v in state.items() if not isinstance(v, nn.Parameter)}
    with torch.no_grad():
        found["outputs in evaluation mode"] = network.eval()(inputs)
    return found


def _passes_loop(members: Sequence[nn.Module], inputs: Tensor, noise: MemberNoise | None) -> dict[str, Tensor]:
    rows = []
    for m, member in enumerate(members):
        one: dict[str, Tensor] = {}
        member.train()
        for n in ("first", "second"):
            with noise.of(m) if noise else nullcontext():
                outputs = call_member(member, inputs[m])
            one[f"outputs in the {n} training pass"] = outputs.detach()
            state = member.state_dict(keep_vars=True)
            one |= _gradients(outputs, state, trained_parameters(member))
            one |= {f"buffer {name}": v.clone() for name, v in state.items() if not isinstance(v, nn.Parameter)}
        with torch.no_grad():
            one["outputs in evaluation mode"] = call_member(member.eval(), inputs[m])
        rows.append(one)
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def _gradients(outputs: Tensor, state: Mapping[str, Tensor], parameters: Sequence[Tensor]) -> dict[str, Tensor]:
    """Of a loss that looks at every output differently."""
    weights = torch.linspace(-1.0, 1.0, outputs[0].numel() if outputs.dim() == 3 else outputs.numel())
    weights = weights.view(outputs.shape[-2:]).to(outputs)
    gradients = torch.autograd.grad(outputs, parameters, (outputs.detach() + weights), allow_unused=True)
    names = {value: name for name, value in state.items()}
    pairs = zip(parameters, gradients, strict=True)
    return {f"gradient of {names[parameter]}": gradient for parameter, gradient in pairs if gradient is not None}


def _close(a: Tensor, b: Tensor, tolerance: float = 1e-5, scale: float | None = None) -> bool:
    if a.shape != b.shape:
        return False
    if not b.is_floating_point():
        return bool(torch.equal(a, b))
    scale = _largest(b) if scale is None else scale
    return bool(torch.allclose(a, b, rtol=tolerance, atol=tolerance * scale))


def _largest(value: Tensor) -> float:
    return float(value.abs().max()) if value.numel() else 0.0


def _shape(example: Any) -> str:
    return f"shape {tuple(example.shape)}" if isinstance(example, Tensor) else f"type {type(example).__name__}"


def line(error: Exception) -> str:
    """The first line of what it says."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")

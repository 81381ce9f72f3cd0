"""That a batched network is its members' loop: looked at on a few rows before one is trained."""

import copy
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from ensgap.stack.noise import MemberNoise
from ensgap.stack.probe import close, largest, line
from ensgap.stack.stack import call_member, trained_parameters


def disagreement(
    make: Callable[[Sequence[nn.Module]], nn.Module], pair: Sequence[nn.Module], rows: Tensor, random: bool
) -> str | None:
    """Why a batched network of these two members is not their loop, or nothing.

    In double precision where the network can: outputs, gradients and buffers of two training passes on a few rows, and
    the outputs in evaluation mode.
    """
    inputs = torch.stack([rows, rows.flip(0)])  # [2, batch, …]
    pair, inputs, tolerance = _in_double(pair, inputs)
    noises = [MemberNoise((0, 1), inputs.device) if random else None for _ in range(2)]
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*batching rule")  # vmap would do it member by member
            found = _passes_batched(make(pair), inputs, noises[0])
        expected = _passes_loop(pair, inputs, noises[1])
    except Exception as error:
        return _reason(error)
    kinds = {name.split()[0] for name in expected}  # gradients have one scale: that of a bias before a batch norm is 0
    scale = {kind: max(largest(v) for name, v in expected.items() if name.split()[0] == kind) for kind in kinds}
    for name in expected | found:
        both = name in expected and name in found
        if not both or not close(found[name], expected[name], tolerance, scale[name.split()[0]]):
            return f"its {name} would differ from a loop's"
    return None


def _reason(error: Exception) -> str:
    """What torch says, in fewer words where they are known."""
    text = line(error)
    operation = re.search(r"[Bb]atching rule .*?(aten::\w+)", text)
    if operation:
        return f"vmap has no batching rule for {operation[1]}"
    if "data-dependent control flow" in text or ".item()" in text:
        return "its control flow depends on data"
    if "setup_context" in text or "generate_vmap_rule" in text:
        return "vmap has no rule for its autograd function"
    return text


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

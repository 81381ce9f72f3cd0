"""Any `nn.Module` as a stack: stacked layers where they are known, `torch.func.vmap` otherwise, a loop where neither
serves. Which way is taken depends on the network, the device and the batch size only, so that a resumed trial takes the
same one; before it is taken it is checked on a few rows against the loop.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Generator, Tensor, nn
from torch.nn.parameter import UninitializedParameter

from ensgap.errors import UserError
from ensgap.seeds import NOISE, derive_seed
from ensgap.stack.check import Probe, disagreement, probe
from ensgap.stack.noise import MemberNoise, seeded
from ensgap.stack.optim import OptimizerConfig
from ensgap.stack.stack import BatchedStack, Kernels, LoopStack, Precision, Stack, trained_parameters
from ensgap.stack.vmapped import VmappedNetwork

Way = Literal["stacked", "vmap", "loop"]
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Vectorized:
    """A stack, the way it is computed, and why that one, in a sentence."""

    stack: Stack
    way: Way
    why: str


def make_member(factory: Callable[[], nn.Module], generator: Generator) -> nn.Module:
    """A network whose initial weights follow from the generator's seed.

    The factory draws them from torch's global generator, which begins there for it. What it draws elsewhere, such as
    from NumPy, does not follow from the seed.
    """
    if isinstance(factory, nn.Module):
        raise UserError(
            "Give a function that makes a new network at every call, such as lambda: MyNet(), not a network."
        )
    network = seeded(factory, generator.initial_seed())
    if not isinstance(network, nn.Module):
        raise UserError(f"The function must return a torch.nn.Module, however it returned a {type(network).__name__}.")
    return network


def vectorize(
    factory: Callable[[], nn.Module],
    members: int,
    example: Any,
    optimizer: OptimizerConfig | None = None,
    seed: int = 0,
    device: torch.device = CPU,
) -> Vectorized:
    """A stack of so many members, made by the factory.

    The example is a small batch of one member: a tensor [batch, …] of numbers or token ids, or a tuple of arguments.
    """
    generators = [Generator().manual_seed(derive_seed(seed, member)) for member in range(members)]
    optimizer = optimizer or OptimizerConfig("sgd", [0.1] * members, [0.0] * members)
    return vectorize_members([make_member(factory, g) for g in generators], generators, example, optimizer, device)


def vectorize_members(
    members: Sequence[nn.Module],
    generators: Sequence[Generator],
    example: Any,
    optimizer: OptimizerConfig,
    device: torch.device = CPU,
    precision: Precision = "float32",
    kernels: Kernels = "auto",
    outputs: int | None = None,
) -> Vectorized:
    """A stack of these members.

    The seeds of the generators give each member's noise in training, such as dropout's, a stream of its own.
    `outputs` is the width that the network's output must have.
    """
    _check_members(members)
    example = tuple(e.to(device) for e in example) if isinstance(example, tuple) else example.to(device)
    pair = [copy.deepcopy(member).to(device) for member in (members[0], members[-1])]
    seen = probe(copy.deepcopy(pair[0]), example, outputs)
    way, why, network = _choose(members, pair, example, seen, device, kernels)
    noise = None
    if seen.random:
        noise = MemberNoise([derive_seed(g.initial_seed(), NOISE) for g in generators], device)
    if network is None:
        return Vectorized(LoopStack(members, optimizer, device, precision, noise), way, why)
    return Vectorized(BatchedStack(network(members), members, optimizer, device, precision, noise), way, why)


def _choose(
    members: Sequence[nn.Module],
    pair: Sequence[nn.Module],
    example: Any,
    seen: Probe,
    device: torch.device,
    kernels: Kernels,
) -> tuple[Way, str, Callable[[Sequence[nn.Module]], nn.Module] | None]:
    if seen.keeps is not None:
        why = f"its forward pass changes {seen.keeps}, which is no buffer, so that a resumed trial would lose it"
        return "loop", why, None
    if kernels == "loop":
        return "loop", "a loop was asked for", None
    if len(members) == 1:
        return "loop", "there is one member", None
    if not isinstance(example, Tensor):
        return "loop", f"its input is a {type(example).__name__}, and members' differ in size", None
    if kernels == "auto" and device.type == "cpu" and any(isinstance(m, _CONVOLUTIONS) for m in members[0].modules()):
        return "loop", "on a CPU convolutions gain nothing from batching", None
    reason = disagreement(VmappedNetwork, pair, example, seen.random)
    if reason is not None:
        return "loop", reason, None
    return "vmap", "its outputs and gradients under vmap are those of a loop", VmappedNetwork


_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def _check_members(members: Sequence[nn.Module]) -> None:
    if any(isinstance(parameter, UninitializedParameter) for parameter in members[0].parameters()):
        raise UserError("The network has lazy layers: give them the size of their input.")
    if not trained_parameters(members[0]):
        raise UserError("The network has no parameters to train.")
    seen: dict[int, int] = {}
    for m, member in enumerate(members):
        for parameter in trained_parameters(member):
            if seen.setdefault(parameter.data_ptr(), m) != m:
                raise UserError("Two members share weights: the function must make a new network at every call.")
    shapes = [{name: value.shape for name, value in member.state_dict().items()} for member in members]
    for other in shapes[1:]:
        different = [name for name in shapes[0].keys() | other.keys() if shapes[0].get(name) != other.get(name)]
        if different:
            raise UserError(
                f"Members must have the same layers, however {min(different)} differs: the function must not choose "
                "them at random."
            )

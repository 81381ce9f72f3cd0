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
from ensgap.stack.check import disagreement
from ensgap.stack.noise import MemberNoise, seeded
from ensgap.stack.optim import OptimizerConfig
from ensgap.stack.probe import Probe, has_hooks, line, probe
from ensgap.stack.stack import BatchedStack, Kernels, LoopStack, Precision, Stack, trained_parameters
from ensgap.stack.traced import TracedNetwork
from ensgap.stack.vmapped import VmappedNetwork

Way = Literal["stacked", "vmap", "loop"]
CPU = torch.device("cpu")
ROWS = 4
"""How many rows of the example are looked at: batch norm needs two."""
LARGE = 1e6
"""Floating-point operations in a forward pass, for each of torch's operations, above which vmap is no faster than a
loop on a CPU. Measured with 4, 8 and 16 members: perceptrons with layer norm 1.3 to 2.2 times as fast at 0.3 million,
1.1 to 1.4 at 1.0, 0.8 to 1.0 at 3.6; transformers 0.9 to 1.5 at 0.5, 0.9 to 1.0 at 1.8, 0.7 at 27; convolutions 1.1 to
1.4 at 0.3, 0.9 to 1.1 at 0.8, 0.8 to 0.9 at 2.6; MobileNetV3 1.1 to 1.3 at 0.3. On a GPU nothing was measured."""


@dataclass(frozen=True)
class Vectorized:
    """A stack, the way it is computed, and why that one."""

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
    batch_size: int = 128,
) -> Vectorized:
    """A stack of so many members, made by the factory.

    The example is a small batch of one member: a tensor [batch, …] of numbers or token ids, or a tuple of arguments.
    """
    generators = [Generator().manual_seed(derive_seed(seed, member)) for member in range(members)]
    optimizer = optimizer or OptimizerConfig("sgd", [0.1] * members, [0.0] * members)
    networks = [make_member(factory, generator) for generator in generators]
    return vectorize_members(networks, generators, example, optimizer, device, batch_size=batch_size)


def vectorize_members(
    members: Sequence[nn.Module],
    generators: Sequence[Generator],
    example: Any,
    optimizer: OptimizerConfig,
    device: torch.device = CPU,
    precision: Precision = "float32",
    kernels: Kernels = "auto",
    outputs: int | None = None,
    batch_size: int = 128,
) -> Vectorized:
    """A stack of these members.

    The seeds of the generators give each member's noise in training, such as dropout's, a stream of its own.
    `outputs` is the width that the network's output must have, and the batch size is that of training.
    """
    _check_members(members)
    example = _few_rows(example, device)
    way: Way = "loop"
    try:
        pair = [copy.deepcopy(member).to(device) for member in (members[0], members[-1])]
    except Exception as error:  # a network may hold what cannot be copied, such as a file or a graph's tensors
        seen, make, why = Probe(), None, f"it cannot be copied and so not be checked ({line(error)})"
    else:
        seen = probe(copy.deepcopy(pair[0]), example, outputs)
        obstacle = _obstacle(members, example, seen, kernels)
        if obstacle is not None:
            make, why = None, obstacle
        else:
            way, make, why = _choose(pair, example, seen, device, kernels, batch_size)
    noise = None
    if seen.random:
        seeds = [derive_seed(generator.initial_seed(), NOISE) for generator in generators]
        noise = MemberNoise(seeds, device, seen.scattered)
    if make is None:
        return Vectorized(LoopStack(members, optimizer, device, precision, noise), way, why)
    return Vectorized(BatchedStack(make(members), members, optimizer, device, precision, noise), way, why)


def _few_rows(example: Any, device: torch.device) -> Any:
    if isinstance(example, tuple):
        return tuple(part.to(device) for part in example)
    return example[:ROWS].to(device) if isinstance(example, Tensor) else example


def _obstacle(members: Sequence[nn.Module], example: Any, seen: Probe, kernels: Kernels) -> str | None:
    """Why it must be a loop."""
    if seen.keeps is not None:
        return f"its forward pass changes {seen.keeps}, which a resumed trial would lose; register it as a buffer"
    if kernels == "loop":
        return "it was asked for"
    if len(members) == 1:
        return "there is one member"
    if has_hooks(members[0]):
        return "it has hooks, which belong to the tensors of one member"
    if not isinstance(example, Tensor):
        return f"its input is a {type(example).__name__}, whose parts may differ in size between members"
    return None


def _choose(
    pair: Sequence[nn.Module], example: Tensor, seen: Probe, device: torch.device, kernels: Kernels, batch_size: int
) -> tuple[Way, Callable[[Sequence[nn.Module]], nn.Module] | None, str]:
    """The way, how its batched network is made, and why."""
    if not seen.own_backward and disagreement(TracedNetwork, pair, example, seen.random) is None:
        return "stacked", TracedNetwork, "all its layers have a stacked form"
    flops = seen.flops * batch_size / len(example)
    size = f"about {max(flops / 1e6, 0.01):.2g} MFLOP each"
    if kernels == "auto" and device.type == "cpu" and flops > LARGE:
        return "loop", None, f"its kernels are large ({size}), and batching large ones does not pay on a CPU"
    reason = disagreement(VmappedNetwork, pair, example, seen.random)
    if reason is not None:
        return "loop", None, reason
    small = f", and its kernels are small ({size})" if flops <= LARGE else ""
    return "vmap", VmappedNetwork, f"vmap agrees with a loop{small}"


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

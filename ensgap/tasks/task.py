"""A task: a data set, the network for it, and the defaults to train it with."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn

from ensgap.errors import UserError
from ensgap.losses import Loss
from ensgap.points import Points, Prepare, as_they_are
from ensgap.seeds import INIT, SLOW, derive_seed, member_generators
from ensgap.stack import (
    BatchedStack,
    BatchEnsembleStack,
    FastInit,
    Kernels,
    LoopStack,
    OptimizerConfig,
    Precision,
    Stack,
)
from ensgap.train import TrainConfig


@dataclass(frozen=True)
class TaskData:
    """The training pool and the test points, which only selected settings ever meet."""

    pool: Points
    test: Points
    notes: tuple[str, ...] = ()  # what a reader of the report must know of this data


@dataclass(frozen=True)
class Defaults:
    """How a study of a task is run unless its flags say otherwise."""

    train: TrainConfig
    members: int
    replicates: int
    test_replicates: int
    val_fraction: float
    grid: tuple[float, ...]  # weight decays, always with 0


PAPER_SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
"""The validation shares of the paper (NCI1 has larger ones)."""


@dataclass(frozen=True)
class DesignDefaults:
    """How the studies beside weight decay are run unless their flags say otherwise."""

    weight_decay: float  # h*_ind of a weight-decay study, for temperature
    val_fractions: tuple[float, ...]
    stopping_lr: float = 1e-3  # of Adam
    temperature_replicates: int = 10
    stopping_replicates: int = 10
    batch_ensemble_fraction: float = 0.02


def no_preparation(pool: Points, train_index: Tensor) -> Prepare:  # noqa: ARG001
    """For inputs that need none."""
    return as_they_are


@dataclass(frozen=True)
class Task:
    """What a study needs to know of a data set."""

    name: str
    title: str
    classes: int  # outputs of the network; 2 for a regression: mean and variance
    load: Callable[[Path | None], TaskData]
    member: Callable[[Generator | None], nn.Module]
    """One member as an ordinary network, its weights drawn from the generator."""
    stacked: Callable[[int], nn.Module]
    """So many members as one batched network; its parameters have the ordinary one's names, and a leading axis."""
    loop_on_cpu: bool
    """Whether a loop over ordinary networks is faster on a CPU; on a GPU batched kernels are."""
    defaults: Defaults
    design: DesignDefaults
    prepare: Callable[[Any, Tensor], Prepare] = no_preparation
    """How members see their inputs, given the pool and what each trains on [members, points]."""
    presets: Mapping[str, Defaults] = field(default_factory=dict)
    with_layers: Callable[[int], "Task"] | None = None
    """The task with so many hidden layers in its network, where that is an option."""
    batch_ensemble: Callable[[int, int], nn.Module] | None = None
    """So many BatchEnsembles of so many members each as one batched network, where that is built."""
    smoke_fraction: float = 1.0
    """The share of the data that a smoke run uses."""
    loss: Loss = "classification"
    """The labels of a regression are floating-point numbers."""

    def preset(self, name: str | None) -> Defaults:
        """The defaults of that name, or the usual ones."""
        if name is None:
            return self.defaults
        if name not in self.presets:
            known = f"it has: {', '.join(self.presets)}" if self.presets else "it has none"
            raise UserError(f"The task {self.name} has no preset '{name}'; {known}.")
        return self.presets[name]

    def stack(
        self,
        generators: Sequence[Generator],
        optimizer: OptimizerConfig,
        device: torch.device,
        kernels: Kernels = "auto",
        precision: Precision = "float32",
    ) -> Stack:
        """A stack with a member for each generator, by whichever way is fastest on the device unless one is named."""
        members = [self.member(generator) for generator in generators]
        if self._loops(device, kernels):
            return LoopStack(members, optimizer, device, precision)
        return BatchedStack(self.stacked(len(members)), members, optimizer, device, precision)

    def batch_ensembles(self) -> Callable[[int, int], nn.Module]:
        """How its BatchEnsembles are made; where that is not built, a clear error."""
        if self.batch_ensemble is None:
            raise UserError(
                f"BatchEnsemble is built for digits, covertype and cifar10; choose one of them instead of {self.name}."
            )
        return self.batch_ensemble

    def batch_ensemble_stack(
        self,
        seed: int,
        replicates: Sequence[int],
        members: int,
        init: FastInit,
        optimizer: OptimizerConfig,
        device: torch.device,
        precision: Precision = "float32",
        kernels: Kernels = "auto",
    ) -> Stack:
        """A stack with a BatchEnsemble for each replicate."""
        slow = [torch.Generator().manual_seed(derive_seed(seed, replicate, SLOW)) for replicate in replicates]
        return BatchEnsembleStack(
            self.batch_ensembles()(len(replicates), members),
            [self.member(generator) for generator in slow],
            member_generators(seed, replicates, members, INIT),
            init,
            optimizer,
            device,
            precision,
            loop=self._loops(device, kernels),
        )

    def _loops(self, device: torch.device, kernels: Kernels) -> bool:
        return kernels == "loop" or (kernels == "auto" and self.loop_on_cpu and device.type == "cpu")


def log_spaced(low: float, high: float, count: int) -> tuple[float, ...]:
    """`count` values from low to high, evenly in the logarithm, to four digits."""
    if count == 1:
        return (low,)
    step = (math.log(high) - math.log(low)) / (count - 1)
    return tuple(float(f"{math.exp(math.log(low) + i * step):.4g}") for i in range(count))

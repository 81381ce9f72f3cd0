"""A task: a data set, the network for it, and the defaults to train it with."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Generator, Tensor, nn

from ensgap.errors import UserError
from ensgap.hyperparameters import PER_MEMBER, PER_STACK, Setting, network_arguments
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

if TYPE_CHECKING:
    from ensgap.tasks.own import OwnTask


@dataclass(frozen=True)
class TaskData:
    """The training pool and the test points, which only selected settings ever meet."""

    pool: Points
    test: Points
    notes: tuple[str, ...] = ()  # what a reader of the report must know of this data
    fingerprint: str | None = None  # of data that somebody brought, and may change


@dataclass(frozen=True)
class Defaults:
    """How a study of a task is run unless its flags say otherwise."""

    train: TrainConfig
    members: int
    replicates: int
    test_replicates: int
    val_fraction: float
    grid: tuple[float, ...]  # weight decays, always with 0
    train_fraction: float = 1.0  # the share of the pool
    test_fraction: float = 1.0  # the share of the test data


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
    stopping_epochs: int = 1000  # at most; no run of ours came near it
    batch_ensemble_fraction: float = 0.02
    train_fraction: float = 1.0  # the share of the pool
    test_fraction: float = 1.0  # the share of the test data


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
    """Other defaults by name, with the same network and all of the data."""
    scaled_down: Mapping[str, "Task"] = field(default_factory=dict)
    """Smaller tasks by the preset's name: less data, fewer epochs, a smaller network, and so a name of their own, by
    which their trials are told from those of this one. They have no presets, so nothing takes them for the paper's."""
    smaller_network: str = ""
    """What the network of a smaller task is called; empty at full size."""
    with_layers: Callable[[int], "Task"] | None = None
    """The task with so many hidden layers in its network, where that is an option."""
    with_width: Callable[[int], "Task"] | None = None
    """The task with so many features in each hidden layer of its network, where that is an option."""
    batch_ensemble: Callable[[int, int], nn.Module] | None = None
    """So many BatchEnsembles of so many members each as one batched network, where that is built."""
    smoke_fraction: float = 1.0
    """The share of the data that a smoke run uses."""
    loss: Loss = "classification"
    """The labels of a regression are floating-point numbers."""

    @classmethod
    def from_arrays(
        cls, name: str, x: Any, y: Any, network: Callable[..., nn.Module], test: Any = 0.2, **options: Any
    ) -> "OwnTask":
        """A task of your own from arrays (NumPy, torch, pandas) and a function that makes a new network at every call.

        `test` is the share of points that is kept for the test (stratified), or a pair (x_test, y_test). Options:
        `classes` (their number or their list; default: those in y), `loss` ("regression" for numbers), `train` (a
        TrainConfig; default: Adam, learning rate 0.001, 40 epochs), `members`, `replicates`, `test_replicates`,
        `val_fraction` and `title`.
        """
        from ensgap.tasks import own

        return own.from_arrays(name, x, y, network, test, **options)

    @classmethod
    def from_datasets(
        cls, name: str, train_data: Any, test_data: Any, network: Callable[..., nn.Module], **options: Any
    ) -> "OwnTask":
        """The same from two torch map-style Datasets of pairs (tensor, label), which are read into memory once: what a
        data set draws at random (augmentation) is drawn once.
        """
        from ensgap.tasks import own

        return own.from_datasets(name, train_data, test_data, network, **options)

    def at(self, setting: Setting) -> Self:
        """The task with the network of a setting; a built-in one has no arguments to set."""
        unknown = network_arguments(setting)
        if unknown:
            raise UserError(
                f"The hyperparameter {min(unknown)} is not one of training ({', '.join((*PER_MEMBER, *PER_STACK))}), "
                f"and the network of {self.name} takes none."
            )
        return self

    def without_data(self) -> Self:
        """What workers get: built-in tasks hold no data."""
        return self

    def with_preset(self, name: str | None) -> "Task":
        """The task with the defaults of that name, or in that smaller form; without a name, as it is."""
        if name is None:
            return self
        if name in self.scaled_down:
            return self.scaled_down[name]
        if name not in self.presets:
            names = ", ".join((*self.presets, *self.scaled_down))
            raise UserError(f"The task {self.name} has no preset '{name}'; it has{f': {names}' if names else ' none'}.")
        return replace(self, defaults=self.presets[name])

    def stack(
        self,
        generators: Sequence[Generator],
        optimizer: OptimizerConfig,
        device: torch.device,
        kernels: Kernels = "auto",
        precision: Precision = "float32",
        points: Points | None = None,
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

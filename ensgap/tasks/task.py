"""A task: a data set, the network for it, and the defaults to train it with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Generator, Tensor, nn

from ensgap.train import TrainConfig


@dataclass(frozen=True)
class Points:
    """Inputs and labels, held once; members read their mini-batches from it by index."""

    inputs: Tensor  # [points, …]
    labels: Tensor  # [points]

    def __len__(self) -> int:
        return len(self.labels)

    def gather(self, index: Tensor) -> Tensor:  # [members, batch] -> [members, batch, …]
        """The inputs of each member's own points."""
        return self.inputs[index]


@dataclass(frozen=True)
class TaskData:
    """The training pool and the test points, which only selected settings ever meet."""

    pool: Points
    test: Points


@dataclass(frozen=True)
class Task:
    """What a study needs to know of a data set."""

    name: str
    title: str
    classes: int
    load: Callable[[Path | None], TaskData]
    network: Callable[[Sequence[Generator]], nn.Module]
    """The stack, one member per generator: [members, batch, …] -> logits [members, batch, classes]."""
    train: TrainConfig
    members: int
    replicates: int
    test_replicates: int
    val_fraction: float
    grid: tuple[float, ...]
    """The weight decays of the default grid; always with 0."""

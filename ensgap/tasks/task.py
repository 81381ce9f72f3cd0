"""A task: a data set, the network for it, and the defaults to train it with."""

import math
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
        rows = self.inputs.index_select(0, index.flatten())
        return rows.view(*index.shape, *rows.shape[1:])


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


def log_spaced(low: float, high: float, count: int) -> tuple[float, ...]:
    """`count` values from low to high, evenly in the logarithm, to four digits."""
    if count == 1:
        return (low,)
    step = (math.log(high) - math.log(low)) / (count - 1)
    return tuple(float(f"{math.exp(math.log(low) + i * step):.4g}") for i in range(count))

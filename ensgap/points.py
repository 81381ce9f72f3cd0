"""Points: inputs and labels held once, from which all members of a stack read their mini-batches by index."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import torch
from torch import Generator, Tensor


class Points(Protocol):
    """What every kind of points can do."""

    @property
    def labels(self) -> Tensor:
        """All labels [points]."""
        ...

    def __len__(self) -> int: ...

    def gather(self, index: Tensor) -> Any:
        """The inputs of each member's own points, for an index [members, batch]."""
        ...

    def subset(self, index: Tensor) -> Self:
        """Just some of the points."""
        ...

    def to(self, device: torch.device) -> Self:
        """On a device."""
        ...


class Prepare(Protocol):
    """How a stack makes its members' inputs from gathered ones: normalised by each member's own training points, and,
    where there are generators (in training), augmented.
    """

    def __call__(self, inputs: Any, generators: Sequence[Generator] | None) -> Any: ...


def as_they_are(inputs: Any, generators: Sequence[Generator] | None) -> Any:  # noqa: ARG001
    """Inputs that need no preparation."""
    return inputs


@dataclass(frozen=True)
class TensorPoints:
    """Points whose inputs are rows of one tensor."""

    inputs: Tensor  # [points, …]
    labels: Tensor  # [points]

    def __len__(self) -> int:
        return len(self.labels)

    def gather(self, index: Tensor) -> Tensor:  # [members, batch] -> [members, batch, …]
        """Rows by index; selecting flat is three times as fast as advanced indexing."""
        rows = self.inputs.index_select(0, index.flatten().to(self.inputs.device, non_blocking=True))
        return rows.view(*index.shape, *rows.shape[1:])

    def subset(self, index: Tensor) -> Self:
        """Just some of the points."""
        return replace(self, inputs=self.inputs[index], labels=self.labels[index])

    def to(self, device: torch.device) -> Self:
        """On a device."""
        return replace(self, inputs=self.inputs.to(device), labels=self.labels.to(device))


def standardize(points: TensorPoints, train_index: Tensor) -> Prepare:
    """Features minus the mean, over the standard deviation, of each member's own training points."""
    members = [points.inputs[own] for own in train_index]
    mean = torch.stack([x.mean(0) for x in members]).unsqueeze(1)  # [members, 1, features]
    std = torch.stack([x.std(0, correction=0) for x in members]).unsqueeze(1)
    std = torch.where(std > 0, std, 1.0)  # a constant feature becomes 0

    def prepare(inputs: Tensor, generators: Sequence[Generator] | None) -> Tensor:  # noqa: ARG001
        return (inputs - mean) / std

    return prepare

"""The training loop of a stack: a generator that yields one item per epoch and can be stopped, saved and continued."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Generator, Tensor

from ensgap.gaussian import TargetScale
from ensgap.losses import loss_of
from ensgap.points import Points, Prepare, as_they_are
from ensgap.stack import Stack
from ensgap.stack.optim import OptimizerName

ScheduleName = Literal["cosine", "constant"]


@dataclass(frozen=True)
class TrainConfig:
    """How a member is trained; a stack makes vectors over its members from the learning rate and the setting."""

    optimizer: OptimizerName = "sgd"
    lr: float = 0.1
    momentum: float = 0.9
    schedule: ScheduleName = "cosine"
    epochs: int = 40
    batch_size: int = 128  # a batch's loss is its sum over this, so the short last batch of an epoch counts for less


@dataclass(frozen=True)
class Epoch:
    """The figures of one epoch of a stack."""

    epoch: int  # epochs done, from 1
    train_nll: Tensor  # [members]
    seconds: float

    @property
    def diverged(self) -> bool:
        """Whether any member's loss stopped being a finite number."""
        return not bool(torch.isfinite(self.train_nll).all())


def lr_factor(schedule: ScheduleName, epoch: int, epochs: int) -> float:
    """The learning rate of an epoch (from 0) as a share of the first one; stepped once per epoch."""
    return 0.5 * (1 + math.cos(math.pi * epoch / epochs)) if schedule == "cosine" else 1.0


def batch_bounds(points: int, batch_size: int) -> list[tuple[int, int]]:
    """Where an epoch's mini-batches start and end; a last batch of one point, of which batch norm has no variance,
    joins the one before.
    """
    starts = list(range(0, points, batch_size))
    if len(starts) > 1 and points - starts[-1] == 1:
        starts.pop()
    return list(zip(starts, [*starts[1:], points], strict=True))


class Training:
    """A stack in training: its members' data and generators, and how far it is."""

    def __init__(
        self,
        stack: Stack,
        points: Points,
        train_index: Tensor,  # [members, points]: what each member trains on
        config: TrainConfig,
        generators: Sequence[Generator],
        prepare: Prepare = as_they_are,
    ) -> None:
        self.stack = stack
        self.points = points
        self.train_index = train_index
        self.config = config
        self.generators = list(generators)
        self.prepare = prepare
        regression = loss_of(points.labels) == "regression"
        self.scale = TargetScale.of(points.labels, train_index) if regression else None
        self.epoch = 0

    def epochs(self) -> Iterator[Epoch]:
        """Train on from where it is to the last epoch, yielding after each."""
        while self.epoch < self.config.epochs:
            started = time.perf_counter()
            self.stack.set_lr_factor(lr_factor(self.config.schedule, self.epoch, self.config.epochs))
            order = self._draw_order()
            labels = self._labels_at(order)
            total = torch.zeros(len(order), device=self.points.labels.device)
            for start, end in batch_bounds(order.shape[1], self.config.batch_size):
                index = order[:, start:end]
                inputs = self.prepare(self.points.gather(index), self.generators)
                total += self.stack.step(inputs, labels[:, start:end], self.config.batch_size)
            self.epoch += 1
            train_nll = total / order.shape[1]
            if self.scale is not None:
                train_nll = self.scale.nll_in_users_units(train_nll)
            yield Epoch(self.epoch, train_nll.cpu(), time.perf_counter() - started)

    def _labels_at(self, index: Tensor) -> Tensor:  # [members, batch] -> [members, batch]
        """What members learn at their own points: classes, or standardised targets."""
        labels = labels_at(self.points, index)
        return labels if self.scale is None else self.scale.standardized(labels)

    def _draw_order(self) -> Tensor:  # -> [members, points]
        points = self.train_index.shape[1]
        order = [torch.randperm(points, generator=g) for g in self.generators]
        return self.train_index.gather(1, torch.stack(order))

    def predict(self, points: Points, index: Tensor) -> Tensor:
        """Each member's logits [members, points, classes] at the points of its row of `index`, in evaluation mode; of a
        regression its mean and variance [members, points, 2], in the user's units.
        """
        pieces = index.split(self.config.batch_size, dim=1)
        found = [self._outputs(self.prepare(points.gather(piece), None)).cpu() for piece in pieces]
        return torch.cat(found, dim=1)

    def _outputs(self, inputs: Any) -> Tensor:
        outputs = self.stack.logits(inputs)
        return outputs if self.scale is None else self.scale.in_users_units(outputs)

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to continue bit for bit; tensors, numbers and strings only."""
        return {
            "epoch": self.epoch,
            "stack": self.stack.state_dict(),
            "generators": [g.get_state() for g in self.generators],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state."""
        self.epoch = state["epoch"]
        self.stack.load_state_dict(state["stack"])
        for generator, saved in zip(self.generators, state["generators"], strict=True):
            generator.set_state(saved)


def labels_at(points: Points, index: Tensor) -> Tensor:  # [members, batch] -> [members, batch]
    """The labels of each member's own points, on the points' device."""
    return points.labels.take(index.to(points.labels.device, non_blocking=True))

"""The training loop of a stack: a generator that yields one item per epoch and can be stopped, saved and continued."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Generator, Tensor, nn

from ensgap.stack.optim import OptimizerName, StackOptimizer

ScheduleName = Literal["cosine", "constant"]


@dataclass(frozen=True)
class TrainConfig:
    """How a member is trained; a stack makes vectors over its members from the learning rate and the setting."""

    optimizer: OptimizerName = "sgd"
    lr: float = 0.1
    momentum: float = 0.9
    schedule: ScheduleName = "cosine"
    epochs: int = 40
    batch_size: int = 128


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


class HasPoints(Protocol):
    """Where a stack reads its data: inputs by index, and all labels."""

    @property
    def labels(self) -> Tensor:
        """All labels [points]."""
        ...

    def gather(self, index: Tensor) -> Tensor:
        """Inputs [members, batch, …] of the points of an index [members, batch]."""
        ...


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
    """A stack in training: network, optimizer, the members' generators, and how far it is."""

    def __init__(
        self,
        network: nn.Module,
        points: HasPoints,
        train_index: Tensor,  # [members, points]: what each member trains on
        config: TrainConfig,
        lr: Tensor,  # [members]
        weight_decay: Tensor,  # [members]
        generators: Sequence[Generator],
    ) -> None:
        self.network = network
        self.points = points
        self.train_index = train_index
        self.config = config
        self.generators = list(generators)
        self.optimizer = StackOptimizer(
            list(network.parameters()), config.optimizer, lr, weight_decay, momentum=config.momentum
        )
        self.epoch = 0

    def epochs(self) -> Iterator[Epoch]:
        """Train on from where it is to the last epoch, yielding after each."""
        while self.epoch < self.config.epochs:
            started = time.perf_counter()
            self.network.train()
            self.optimizer.set_lr_factor(lr_factor(self.config.schedule, self.epoch, self.config.epochs))
            total = torch.zeros(len(self.generators), device=self.train_index.device)
            order = self._draw_order()
            for start, end in batch_bounds(order.shape[1], self.config.batch_size):
                index = order[:, start:end]
                logits = self.network(self.points.gather(index))
                nll, gradient = nll_and_gradient(logits, self.points.labels[index])
                self.optimizer.step(logits, gradient.div_(self.config.batch_size))
                total += nll
            self.epoch += 1
            yield Epoch(self.epoch, (total / order.shape[1]).cpu(), time.perf_counter() - started)

    def _draw_order(self) -> Tensor:  # -> [members, points]
        points = self.train_index.shape[1]
        order = [torch.randperm(points, generator=g, device=g.device) for g in self.generators]
        return self.train_index.gather(1, torch.stack(order))

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to continue bit for bit; tensors, numbers and strings only."""
        return {
            "epoch": self.epoch,
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generators": [g.get_state() for g in self.generators],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state."""
        self.epoch = state["epoch"]
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        for generator, saved in zip(self.generators, state["generators"], strict=True):
            generator.set_state(saved)


@torch.no_grad()
def nll_and_gradient(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Each member's loss summed over its batch, [members], and its gradient in the logits [members, batch, classes].

    The gradient is softmax minus one-hot: no member's depends on the others, and written out it spares autograd a dozen
    nodes.
    """
    log_probs = logits.float().log_softmax(-1) if logits.dtype != torch.float64 else logits.log_softmax(-1)
    own = labels.unsqueeze(-1)
    nll = -log_probs.gather(-1, own).sum((1, 2))
    gradient = log_probs.exp_().scatter_add_(-1, own, log_probs.new_full((), -1.0).expand_as(own))
    return nll, gradient.to(logits.dtype)


@torch.no_grad()
def predict(network: nn.Module, points: HasPoints, index: Tensor, batch_size: int = 1024) -> Tensor:
    """Each member's logits [members, points, classes] at the points of its row of `index`, in evaluation mode."""
    network.eval()
    return torch.cat([network(points.gather(piece)).cpu() for piece in index.split(batch_size, dim=1)], dim=1)

"""Gaussian members of a regression: their loss with its gradient, and the figures of single ones and of mixtures.

A member's network has two outputs, both in units of the standardised target: a mean, and a number whose softplus is the
variance. Predictions hold mean and variance [..., points, 2] in the user's units.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

LOG_2PI = math.log(2 * math.pi)
LEAST_VARIANCE = 1e-6
"""Of a standardised target: added to every variance, so that a member that fits its points exactly stays finite."""
LEVELS = tuple(level / 10 for level in range(1, 10))
"""The central intervals whose coverage is compared with what they promise: 10%, 20%, …, 90%."""


@torch.no_grad()
def nll_and_gradient(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Each member's loss summed over its batch, [members], and its gradient in the outputs [members, batch, 2]; written
    out, like that of classes.
    """
    exact = outputs.float() if outputs.dtype != torch.float64 else outputs
    mean, raw = exact.unbind(2)
    surplus, variance = mean - targets.to(exact.dtype), _variance(raw)
    nll = 0.5 * (LOG_2PI + variance.log() + surplus.square() / variance)
    in_mean = surplus / variance
    in_raw = 0.5 * (1 / variance - in_mean.square()) * raw.sigmoid()
    return nll.sum(1), torch.stack([in_mean, in_raw], 2).to(outputs.dtype)


def _variance(raw: Tensor) -> Tensor:
    return F.softplus(raw) + LEAST_VARIANCE


@dataclass(frozen=True)
class TargetScale:
    """Mean and standard deviation of each member's own training targets: members learn standardised ones."""

    mean: Tensor  # [members, 1]
    std: Tensor  # [members, 1]

    @classmethod
    def of(cls, targets: Tensor, train_index: Tensor) -> "TargetScale":
        """From all targets [points] and what each member trains on [members, points]."""
        own = targets[train_index.to(targets.device)].double()
        mean, std = own.mean(1, keepdim=True), own.std(1, correction=0, keepdim=True)
        return cls(mean.to(targets.dtype), torch.where(std > 0, std, 1.0).to(targets.dtype))

    def standardized(self, targets: Tensor) -> Tensor:  # [members, batch] -> [members, batch]
        """What members learn."""
        return (targets - self.mean) / self.std

    def in_users_units(self, outputs: Tensor) -> Tensor:  # [members, batch, 2] -> mean and variance
        """What members say."""
        mean, raw = outputs.unbind(-1)
        return torch.stack([self.mean + self.std * mean, self.std.square() * _variance(raw)], -1)

    def nll_in_users_units(self, nll: Tensor) -> Tensor:  # [members] -> [members]
        """A density of the target itself, not of the standardised one."""
        return nll + self.std.squeeze(1).log()


def log_density(members: Tensor, targets: Tensor) -> Tensor:  # [..., points, 2], [..., points] -> [..., points]
    """Log-density of each point's target under one Gaussian."""
    mean, variance = members.unbind(-1)
    return -0.5 * (LOG_2PI + variance.log() + (targets - mean).square() / variance)


def member_figures(members: Tensor, targets: Tensor) -> dict[str, Tensor]:  # [ensembles, members, points, 2]
    """The average member's figures, [ensembles]."""
    alone = mixture_figures(members.unsqueeze(2), targets)  # each a mixture of one
    return {f"avg_member_{name}": values.mean(1) for name, values in alone.items()}


def mixture_figures(members: Tensor, targets: Tensor) -> dict[str, Tensor]:  # [..., members, points, 2] -> [...]
    """NLL, RMSE, coverage error and entropy of the members' mixture with equal weights.

    The entropy is that of the Gaussian with the mixture's mean and variance, which is never below the mixture's own.
    """
    mean, variance = members.unbind(-1)
    count = members.shape[-3]
    points = targets.unsqueeze(-2)  # [..., 1, points]
    nll = math.log(count) - log_density(members, points.expand(mean.shape)).logsumexp(-2)
    below = torch.special.ndtr((points - mean) / variance.sqrt()).mean(-2)  # the mixture's distribution function
    total = variance.mean(-2) + mean.var(-2, correction=0)
    return {
        "nll": nll.mean(-1),
        "rmse": (targets - mean.mean(-2)).square().mean(-1).sqrt(),
        "coverage": _coverage_error(below),
        "entropy": 0.5 * (LOG_2PI + 1 + total.log()).mean(-1),
    }


def _coverage_error(below: Tensor) -> Tensor:  # [..., points] -> [...]
    """Mean over the levels of |share of the points inside the central interval − its level|."""
    outside = (2 * below - 1).abs().unsqueeze(-1)  # [..., points, 1]: the level at which an interval reaches the point
    levels = torch.tensor(LEVELS, dtype=below.dtype, device=below.device)
    inside = (outside <= levels).to(below.dtype).mean(-2)
    return (inside - levels).abs().mean(-1)


def sub_mixtures(members: Tensor) -> Iterator[Tensor]:  # [ensembles, members, points, 2]
    """For every size 1…M its M cyclic subsets {i, i+1, …} [ensembles, subsets, size, points, 2] (one of size M)."""
    count = members.shape[1]
    for size in range(1, count + 1):
        rolled = torch.stack([members.roll(-i, dims=1) for i in range(size)], dim=2)
        yield rolled if size < count else rolled[:, :1]

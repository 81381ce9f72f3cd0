"""The cyclic holdout family: which points of the pool each member keeps out of its training.

The held-out points are cut into M chunks, and member m holds out the k chunks m, m+1, …, m+k−1 (mod M). Order k = 1 is
the paper's disjoint holdout, k = 2 its overlapping one and k = M its shared one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ensgap.errors import UserError
from ensgap.seeds import HOLDOUT, derive_seed

NAMES = ("disjoint", "overlapping", "shared")
QUANTILES = 10
"""The targets of a regression are stratified by so many of them."""


@dataclass(frozen=True)
class Holdout:
    """How many chunks each member holds out, and which share of the pool they make together."""

    order: int
    fraction: float


def parse_order(holdout: str, members: int) -> int:
    """The order k of a holdout given by name or as a number."""
    named = {"disjoint": 1, "overlapping": 2, "shared": members}
    try:
        order = named[holdout] if holdout in named else int(holdout)
    except ValueError:
        raise UserError(f"A holdout is {', '.join(NAMES)} or an order 1…{members}, not '{holdout}'.") from None
    if not 1 <= order <= members:
        raise UserError(f"A holdout of order {order} needs that many members; choose an order from 1 to {members}.")
    return order


def name_of(order: int, members: int) -> str:
    """An order as people call it."""
    return {1: "disjoint", 2: "overlapping", members: "shared"}.get(order, f"order {order}")


def describe(holdout: Holdout, members: int) -> str:
    """A holdout in words."""
    name = name_of(holdout.order, members)
    return f"{'an' if name[0] == 'o' else 'a'} {name} holdout of {100 * holdout.fraction:g}%"


def stratified_order(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A random order of all points of which every stretch has the classes in their overall proportions.

    Each class is shuffled and spread evenly over the unit interval from a random offset (systematic sampling); targets
    of a regression are put into classes by their quantiles.
    """
    if np.issubdtype(labels.dtype, np.floating):
        ranks = np.argsort(np.argsort(labels, kind="stable"), kind="stable")
        labels = ranks * QUANTILES // len(labels)
    position = np.empty(len(labels))
    for c in np.unique(labels):
        points = rng.permutation(np.flatnonzero(labels == c))
        position[points] = (np.arange(len(points)) + rng.random()) / len(points)
    return np.argsort(position, kind="stable")


def cyclic_holdout(labels: np.ndarray, members: int, holdout: Holdout, rng: np.random.Generator) -> Tensor:
    """The holdout mask [members, points]: True where a member keeps a point out of its training."""
    points, order, fraction = len(labels), holdout.order, holdout.fraction
    if not 0 < fraction < 1:
        raise UserError(f"The validation share must lie between 0 and 1, however: --val-fraction {fraction:g}.")
    if not 1 <= order <= members:
        raise UserError(
            f"The holdout order must lie between 1 and the number of members, however: {order} of {members}."
        )
    # a shared holdout is held out by all, so its chunks need not be of equal size
    held = int(fraction * points) if order == members else members * int(fraction * points / order)
    if held > points:
        raise UserError(
            f"{members} chunks of {held // members} points do not fit into a pool of {points}; "
            f"with {members} members and order {order} keep --val-fraction at or below {order / members:g}."
        )
    bounds = np.arange(members + 1) * held // members
    chunk_of = np.full(points, -1)
    for chunk, piece in enumerate(np.split(stratified_order(labels, rng)[:held], bounds[1:-1])):
        chunk_of[piece] = chunk
    distance = (chunk_of - np.arange(members)[:, None]) % members  # [members, points]
    mask = (chunk_of >= 0) & (distance < order)
    if np.issubdtype(labels.dtype, np.floating):
        _check_points(mask, fraction)
    else:
        _check_classes(mask, labels, fraction)
    return torch.from_numpy(mask)


def _check_points(mask: np.ndarray, fraction: float) -> None:
    held, points = int(mask.sum(1).min()), mask.shape[1]
    if held < 1 or points - held < 2:
        advice = "larger" if held < 1 else "smaller"
        raise UserError(
            f"A validation share of {fraction:g} leaves {held} of {points} points in a member's holdout; choose a "
            f"{advice} --val-fraction."
        )


def _check_classes(mask: np.ndarray, labels: np.ndarray, fraction: float) -> None:
    there = np.bincount(labels) > 0
    for side, points in (("holdout", mask), ("training data", ~mask)):
        for member, kept in enumerate(points):
            missing = np.flatnonzero(there & (np.bincount(labels[kept], minlength=len(there)) == 0))
            if len(missing):
                advice = "larger" if side == "holdout" else "smaller"
                raise UserError(
                    f"A validation share of {fraction:g} leaves no point of class {missing[0]} in the {side} of member "
                    f"{member} ({kept.sum()} points); choose a {advice} --val-fraction."
                )


def replicate_holdouts(labels: Tensor, seed: int, replicates: Sequence[int], members: int, holdout: Holdout) -> Tensor:
    """The holdouts [replicates, members, points] of several replicates, each with a split of its own."""
    y = labels.cpu().numpy()
    rngs = [np.random.default_rng(derive_seed(seed, replicate, HOLDOUT)) for replicate in replicates]
    return torch.stack([cyclic_holdout(y, members, holdout, rng) for rng in rngs])

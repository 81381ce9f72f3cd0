"""Cells of different holdouts beside each other, for the claims."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from ensgap.gap import Array
from ensgap.holdout import Holdout
from ensgap.results.early_stopping import Stopped
from ensgap.results.temperature import Scaled

LARGE_SHARE = 0.2


class HasHoldout(Protocol):
    """A cell of a design."""

    @property
    def holdout(self) -> Holdout:
        """What it holds out."""
        ...


CellT = TypeVar("CellT", bound=HasHoldout)


def of_paper(order: int, members: int) -> bool:
    """Whether the paper has that holdout: disjoint, overlapping, shared."""
    return order in (1, 2, members)


def large_pairs(cells: Sequence[CellT], members: int) -> list[tuple[CellT, CellT]]:
    """The shared and the overlapping cell of every large share that has both."""
    shared = {cell.holdout.fraction: cell for cell in cells if cell.holdout.order == members}
    return [
        (shared[cell.holdout.fraction], cell)
        for cell in cells
        if cell.holdout.order == 2 < members
        and cell.holdout.fraction >= LARGE_SHARE
        and cell.holdout.fraction in shared
    ]


def paired(
    replicates: Sequence[int], first: Stopped | Scaled, other_replicates: Sequence[int], then: Stopped | Scaled
) -> Array:
    """The ensemble's NLL of one cell minus that of another, at the replicates that both have."""
    common = [replicate for replicate in replicates if replicate in other_replicates]
    ours, theirs = ([own.index(r) for r in common] for own in (replicates, other_replicates))
    return first.figures["ensemble_nll"][ours] - then.figures["ensemble_nll"][theirs]

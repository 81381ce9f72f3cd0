"""The figures of a BatchEnsemble study: test figures of what joint stopping kept, and how far holdouts leak."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from ensgap import metrics
from ensgap.folder import StudyFolder
from ensgap.gap import Array, Estimate, ratio_of_means
from ensgap.holdout import Holdout
from ensgap.predictions import Predictions
from ensgap.results.cells import Cell, Design, read_design
from ensgap.results.early_stopping import Stopped, kept
from ensgap.stopping import Rule

Where = Literal["train", "holdout", "test"]
WHERE: tuple[Where, ...] = ("train", "holdout", "test")
TRUST, CLEAR = 0.1, 0.5
"""A leak surely above the first is one: stopping on the holdout alone makes it look a little better than test data. A
holdout may be trusted if its leak is surely below the second."""


@dataclass(frozen=True)
class BatchEnsembleCell:
    """One initialisation of the fast weights (or the deep ensemble) with one holdout."""

    init: str
    holdout: Holdout
    shared: bool  # by all members
    replicates: tuple[int, ...]
    parameters: int  # of one ensemble
    stopped: Stopped
    members: Mapping[Where, Mapping[str, Array]]  # the average member's metrics; nothing for the deep ensemble

    def leak(self) -> Estimate | None:
        """How far the holdout follows training instead of test: (test − holdout) / (test − train) of the average
        member's NLL. 0: as new as test data; 1: as if trained on.
        """
        if not self.members:
            return None
        nll = {where: figures["nll"] for where, figures in self.members.items()}
        return ratio_of_means(nll["test"] - nll["holdout"], nll["test"] - nll["train"])

    def verdict(self) -> str:
        """Whether the holdout may be trusted; no member trains on one that all of them share."""
        leak = self.leak()
        if leak is None or self.shared:
            return "–"
        return "leaks" if leak.low > TRUST else "trust it" if leak.high < CLEAR else "unclear"


@dataclass(frozen=True)
class BatchEnsembleResults:
    """Everything the report is made from."""

    design: Design
    cells: tuple[BatchEnsembleCell, ...]

    def cell(self, init: str, order: int, fraction: float) -> BatchEnsembleCell | None:
        """The cell of an initialisation and a holdout, if it is there."""
        return next((c for c in self.cells if (c.init, c.holdout) == (init, Holdout(order, fraction))), None)


def read_batch_ensemble(folder: StudyFolder) -> BatchEnsembleResults:
    """The figures of every cell, of what stopping kept: by the ensemble's NLL, under order 1 by the members' mean."""
    design = read_design(folder)
    return BatchEnsembleResults(design, tuple(_cell(cell, design.config["members"]) for cell in design.cells))


def _cell(cell: Cell, count: int) -> BatchEnsembleCell:
    rule: Rule = "joint" if cell.holdout.order > 1 else "shared_epoch"
    members: dict[Where, dict[str, Array]] = {}
    if cell.has(f"{rule}-pool"):
        pool = cell.predictions(f"{rule}-pool")
        test = cell.predictions(f"{rule}-test")
        seen: dict[Where, Predictions] = {"train": replace(pool, held=~pool.held), "holdout": pool, "test": test}
        for where, predictions in seen.items():
            logits, labels = predictions.by_member()
            found = metrics.member_figures(logits.double().log_softmax(-1), labels)
            members[where] = {metric: found[f"avg_member_{metric}"].numpy() for metric in metrics.METRICS}
    shared, parameters = cell.holdout.order == count, cell.trials[0][0].details["parameters"]
    return BatchEnsembleCell(cell.init, cell.holdout, shared, cell.replicates, parameters, kept(cell, rule), members)

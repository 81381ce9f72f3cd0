"""The figures of a temperature study: what each scaling, fitted on the holdout, does on test data."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ensgap import calibrate
from ensgap.calibrate import SCALINGS, Scaling
from ensgap.folder import StudyFolder
from ensgap.gap import Array, Estimate, optimality_gap
from ensgap.holdout import Holdout
from ensgap.metrics import METRICS
from ensgap.results.cells import Cell, Design, read_design

SWEEP_SHARE = 0.05
SWEEP = np.exp(np.linspace(np.log(0.2), np.log(5), 81))


@dataclass(frozen=True)
class Variant:
    """A scaling, with or without the prior."""

    scaling: Scaling
    prior: bool = False

    @property
    def name(self) -> str:
        """For tables."""
        return self.scaling + ("_prior" if self.prior else "")


@dataclass(frozen=True)
class Scaled:
    """One variant in one cell, a value per replicate."""

    figures: Mapping[str, Array]  # of the test data
    temperatures: Array  # [replicates, members]; one column where one temperature serves all
    at_bound: NDArray[np.bool_]  # likewise

    def estimate(self, name: str) -> Estimate:
        """Mean and uncertainty over replicates."""
        return Estimate.of(self.figures[name])


@dataclass(frozen=True)
class TemperatureCell:
    """All variants of one holdout."""

    holdout: Holdout
    replicates: tuple[int, ...]
    points: int  # that a member holds out: what its own temperature is fitted on
    distinct_points: int  # that any member holds out: what a joint temperature is fitted on
    by: Mapping[Variant, Scaled]

    def gap(self) -> Mapping[str, Estimate] | None:
        """The ensemble's test loss with individual temperatures minus with the joint one, paired by replicate."""
        if Variant("joint") not in self.by:
            return None
        return optimality_gap(*(self._ensemble(Variant(scaling)) for scaling in ("individual", "joint")))

    def _ensemble(self, variant: Variant) -> dict[str, Array]:
        return {metric: self.by[variant].figures[f"ensemble_{metric}"] for metric in METRICS}


@dataclass(frozen=True)
class Sweep:
    """Test figures [temperatures] of the ensemble, averaged over replicates, for both joint ways."""

    holdout: Holdout
    temperatures: Array
    curves: Mapping[str, Mapping[str, Array]]  # scaling -> metric -> [temperatures]


@dataclass(frozen=True)
class TemperatureResults:
    """Everything the report is made from."""

    design: Design
    cells: tuple[TemperatureCell, ...]
    sweep: Sweep

    def cell(self, order: int, fraction: float) -> TemperatureCell | None:
        """The cell of a holdout, if it is there."""
        return next((c for c in self.cells if c.holdout == Holdout(order, fraction)), None)


def read_temperature(folder: StudyFolder) -> TemperatureResults:
    """Fit every scaling on the holdout of every cell, and look at the test data with it."""
    design = read_design(folder)
    largest = max(cell.holdout.order for cell in design.cells)
    shared = [cell for cell in design.cells if cell.holdout.order == largest]
    swept = min(shared, key=lambda cell: abs(np.log(cell.holdout.fraction / SWEEP_SHARE)))
    return TemperatureResults(design, tuple(_scale(cell) for cell in design.cells), _sweep(swept))


def _scale(cell: Cell) -> TemperatureCell:
    holdout, test = cell.predictions("holdout"), cell.predictions("test")
    scalings = SCALINGS if cell.holdout.order > 1 else ("none", "individual")
    by = {}
    for variant in [Variant(s, prior) for prior in (False, True) for s in scalings if not (prior and s == "none")]:
        found = calibrate.fit(holdout, variant.scaling, calibrate.PRIOR if variant.prior else None)
        figures = {name: values.numpy() for name, values in calibrate.figures(test, found).items()}
        by[variant] = Scaled(figures, found.values.numpy(), found.at_bound.numpy())
    held = holdout.held[0]  # [members, points]
    return TemperatureCell(cell.holdout, cell.replicates, int(held[0].sum()), int(held.any(0).sum()), by)


def _sweep(cell: Cell) -> Sweep:
    test = cell.predictions("test")
    log_t = torch.from_numpy(np.log(SWEEP))
    curves = {}
    for scaling in ("joint", "pooled"):
        found = calibrate.sweep(test, log_t, scaling)
        curves[scaling] = {metric: values.mean(1).numpy() for metric, values in found.items()}
    return Sweep(cell.holdout, SWEEP, curves)

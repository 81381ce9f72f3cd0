"""The figures of an early-stopping study: what each rule kept, on test data, and what a temperature adds to it."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ensgap import calibrate, metrics
from ensgap.folder import StudyFolder
from ensgap.gap import Array, Estimate, optimality_gap
from ensgap.holdout import Holdout
from ensgap.results.cells import Cell, Design, read_design
from ensgap.stopping import RULES, Rule


@dataclass(frozen=True)
class Stopped:
    """What one rule kept in one cell, a value per replicate."""

    figures: Mapping[str, Array]  # of the test data, and `epochs`: steps until there over steps of an epoch of the pool
    at_bound: float = 0.0  # the share of temperatures on their bound, if one was fitted

    def estimate(self, name: str) -> Estimate:
        """Mean and uncertainty over replicates."""
        return Estimate.of(self.figures[name])


@dataclass(frozen=True)
class StoppingCell:
    """All rules of one holdout."""

    holdout: Holdout
    replicates: tuple[int, ...]
    by: Mapping[Rule, Stopped]
    scaled: Mapping[tuple[Rule, bool], Stopped]
    """The same with a joint temperature from the same holdout, without and with the prior; nothing under order 1."""

    def gap(self) -> Mapping[str, Estimate] | None:
        """The ensemble's test loss with individual stopping minus with joint stopping, paired by replicate."""
        if "joint" not in self.by:
            return None
        return optimality_gap(*(ensemble_figures(self.by[rule]) for rule in ("individual", "joint")))


def ensemble_figures(stopped: Stopped) -> dict[str, Array]:
    """The ensemble's metrics."""
    return {metric: stopped.figures[f"ensemble_{metric}"] for metric in metrics.METRICS}


@dataclass(frozen=True)
class StoppingResults:
    """Everything the report is made from."""

    design: Design
    cells: tuple[StoppingCell, ...]

    def cell(self, order: int, fraction: float) -> StoppingCell | None:
        """The cell of a holdout, if it is there."""
        return next((c for c in self.cells if c.holdout == Holdout(order, fraction)), None)


def read_stopping(folder: StudyFolder) -> StoppingResults:
    """The test figures of what every rule kept in every cell."""
    design = read_design(folder)
    return StoppingResults(design, tuple(_stopped(cell) for cell in design.cells))


def _stopped(cell: Cell) -> StoppingCell:
    by: dict[Rule, Stopped] = {rule: kept(cell, rule) for rule in RULES if cell.has(f"{rule}-test")}
    joint = cell.holdout.order > 1
    scaled = {(rule, prior): _scaled(cell, rule, prior) for rule in by for prior in (False, True) if joint}
    return StoppingCell(cell.holdout, cell.replicates, by, scaled)


def _scaled(cell: Cell, rule: Rule, prior: bool) -> Stopped:
    temperatures = calibrate.fit(cell.predictions(f"{rule}-holdout"), "joint", calibrate.PRIOR if prior else None)
    found = calibrate.figures(cell.predictions(f"{rule}-test"), temperatures)
    return Stopped({name: v.numpy() for name, v in found.items()}, float(temperatures.at_bound.double().mean()))


def kept(cell: Cell, rule: Rule) -> Stopped:
    """What a rule kept: its figures on test data, and for how long it trained."""
    figures = {name: v.numpy() for name, v in metrics.evaluate(cell.predictions(f"{rule}-test")).items()}
    epochs = []
    for record, _ in cell.trials:
        details = record.details
        epochs.append(np.mean(details["kept"][rule], axis=1) * details["steps"] / details["pool_steps"])
    return Stopped(figures | {"epochs": np.concatenate(epochs)})

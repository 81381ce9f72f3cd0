"""What the order of the holdout does to joint early stopping and to a joint temperature, on test data."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ensgap import calibrate
from ensgap.findings.searches import find_studies
from ensgap.folder import StudyFolder
from ensgap.gap import Array, Estimate
from ensgap.results.cells import Cell, read_design
from ensgap.results.early_stopping import kept

METRICS = ("nll", "error")


@dataclass(frozen=True)
class OrderCell:
    """One order and share of one study: figures of the ensemble on test data, and their difference to a shared holdout
    of the same share, paired by replicate.
    """

    study: str
    task: str
    members: int
    share: float
    order: int
    method: str  # joint; individual under order 1, which has no joint one
    replicates: int
    figures: Mapping[str, Estimate]
    difference: Mapping[str, Estimate]  # nothing for the shared holdout itself, or where that is missing


def read_orders(published: Path, study: str) -> list[OrderCell]:
    """All cells of the studies of that kind that have holdouts of several orders."""
    return [cell for folder in find_studies(published, study) for cell in study_orders(folder)]


def study_orders(folder: StudyFolder) -> list[OrderCell]:
    """All cells of one study; nothing where it has a single order."""
    design = read_design(folder)
    if len(design.orders) < 2:
        return []
    config = design.config
    values = {
        (cell.holdout.fraction, cell.holdout.order): (cell, _figures(cell, config["study"])) for cell in design.cells
    }
    found = []
    for (share, order), (cell, figures) in sorted(values.items(), key=lambda item: item[0]):
        shared = values.get((share, config["members"]))
        difference = {}
        if shared is not None and order < config["members"] and set(cell.replicates) & set(shared[0].replicates):
            difference = {metric: _paired(cell, figures[metric], shared[0], shared[1][metric]) for metric in METRICS}
        found.append(
            OrderCell(
                study=config["study"],
                task=config["task"],
                members=config["members"],
                share=share,
                order=order,
                method="joint" if order > 1 else "individual",
                replicates=len(cell.replicates),
                figures={metric: Estimate.of(figures[metric]) for metric in METRICS},
                difference=difference,
            )
        )
    return found


def _figures(cell: Cell, study: str) -> dict[str, Array]:
    """The ensemble's test figures after joint stopping or with a joint temperature; individual ones under order 1."""
    method: calibrate.Scaling = "joint" if cell.holdout.order > 1 else "individual"
    if study == "early_stopping":
        figures = dict(kept(cell, method).figures)  # type: ignore[arg-type]
    else:
        fitted = calibrate.fit(cell.predictions("holdout"), method)
        figures = {name: v.numpy() for name, v in calibrate.figures(cell.predictions("test"), fitted).items()}
    return {metric: figures[f"ensemble_{metric}"] for metric in METRICS}


def _paired(cell: Cell, values: Array, shared: Cell, reference: Array) -> Estimate:
    common = sorted(set(cell.replicates) & set(shared.replicates))
    mine, other = ([own.replicates.index(r) for r in common] for own in (cell, shared))
    return Estimate.of(values[mine] - reference[other])

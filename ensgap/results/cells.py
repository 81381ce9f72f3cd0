"""The trials of a design, read cell by cell: one holdout order and validation share, all replicates."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ensgap.errors import UserError
from ensgap.folder import StudyFolder, TrialRecord
from ensgap.holdout import Holdout, describe, name_of
from ensgap.predictions import Predictions
from ensgap.storage import Place


@dataclass(frozen=True)
class Cell:
    """What was trained with one holdout (and, in a BatchEnsemble, one initialisation of the fast weights)."""

    holdout: Holdout
    init: str  # of the fast weights; "none" is a deep ensemble
    trials: tuple[tuple[TrialRecord, Place], ...]  # finished ones, by replicate

    @property
    def replicates(self) -> tuple[int, ...]:
        """In the order of the predictions."""
        return tuple(r for record, _ in self.trials for r in record.identity["replicates"])

    def predictions(self, name: str) -> Predictions:
        """The predictions of that name of all replicates."""
        return Predictions.join([Predictions.load(path / f"{name}.npz") for _, path in self.trials])

    def has(self, name: str) -> bool:
        """Whether there are predictions of that name."""
        return all(name in record.files for record, _ in self.trials)

    @property
    def seconds(self) -> float:
        """Of training."""
        return sum(record.seconds for record, _ in self.trials)


@dataclass(frozen=True)
class Design:
    """A study of a design as far as it has got."""

    study: Mapping[str, Any]  # study.json
    cells: tuple[Cell, ...]  # those with at least one replicate
    notes: tuple[str, ...]  # what is missing, and why

    @property
    def config(self) -> Mapping[str, Any]:
        """The study's configuration."""
        config: Mapping[str, Any] = self.study["config"]
        return config

    @property
    def seconds(self) -> float:
        """Of training, of all trials."""
        return sum(cell.seconds for cell in self.cells)

    @property
    def orders(self) -> list[int]:
        """The holdout orders it has, the largest (shared) first."""
        return sorted({cell.holdout.order for cell in self.cells}, reverse=True)

    @property
    def shares(self) -> list[float]:
        """The validation shares it has."""
        return sorted({cell.holdout.fraction for cell in self.cells})

    def name(self, order: int) -> str:
        """An order as people call it."""
        return name_of(order, self.config["members"])

    def where(self, holdout: Holdout) -> str:
        """A holdout in words."""
        return describe(holdout, self.config["members"])


def read_design(folder: StudyFolder) -> Design:
    """All cells of the study, by initialisation, order (largest first) and share."""
    study = folder.read_study()
    groups: dict[tuple[str, int, float], list[tuple[TrialRecord, Place]]] = {}
    missing, failed, diverged = 0, 0, []
    for key in study["trials"]:
        record = folder.find_key(key)
        if record is None:
            lost = folder.find_failure(key) is not None
            missing, failed = missing + (not lost), failed + lost
            continue
        holdout = record.identity["holdout"]
        where = (record.identity.get("fast_weights") or "none", holdout["order"], holdout["fraction"])
        if record.status == "diverged":
            diverged.append(describe(Holdout(**holdout), study["config"]["members"]))
        else:
            groups.setdefault(where, []).append((record, folder.trials / key))
    if not groups and not missing and not failed:
        raise UserError("Every trial diverged, so there is nothing to report; try a lower --lr with another --out.")
    if not groups:
        raise UserError(f"No trial of the study in {folder.path} has finished yet; continue it with --resume.")
    notes = list(study["notes"])
    if missing:
        notes.append(f"Unfinished: {missing} of {len(study['trials'])} trials are missing; continue with --resume.")
    if failed:
        notes.append(
            f"Failed (out of memory, or their workers died), and so left out: {failed} of {len(study['trials'])} "
            "trials; --resume tries them again."
        )
    if diverged:
        notes.append(f"Diverged, and so left out: {len(diverged)} trials ({', '.join(sorted(set(diverged)))}).")
    if any(record.details.get("stopped") is False for own in groups.values() for record, _ in own):
        notes.append(f"Some trials reached {study['config']['epochs']} epochs before every rule had stopped.")
    cells = [Cell(Holdout(order, fraction), init, tuple(g)) for (init, order, fraction), g in groups.items()]
    inits = list(study["config"]["inits"])
    cells.sort(key=lambda cell: (inits.index(cell.init), -cell.holdout.order, cell.holdout.fraction))
    return Design(study, tuple(cells), tuple(notes))

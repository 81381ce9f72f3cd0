"""A study's folder: its configuration, and for every trial its record, predictions and, while it runs, a checkpoint."""

import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from ensgap.errors import UserError
from ensgap.predictions import Predictions
from ensgap.spec import Phase, TrialSpec

Status = Literal["finished", "diverged"]


@dataclass(frozen=True)
class TrialRecord:
    """What a trial that ended leaves behind beside its predictions."""

    identity: dict[str, Any]
    status: Status
    epochs: int  # trained
    seconds: float
    validation: dict[str, float]  # means over replicates at the end, for the search

    @property
    def setting(self) -> dict[str, float]:
        """The hyperparameters that were tried."""
        return dict(self.identity["setting"])


@dataclass(frozen=True)
class StudyFolder:
    """Reads and writes a study's folder; every file is written whole or not at all, and none is read with pickle."""

    path: Path

    @property
    def _study_file(self) -> Path:
        return self.path / "study.json"

    def exists(self) -> bool:
        """Whether a study has been started here."""
        return self._study_file.exists()

    def read_study(self) -> dict[str, Any]:
        """The study's configuration, command, versions and seconds so far."""
        if not self.exists():
            raise UserError(
                f"{self.path} holds no study (there is no study.json in it); run one with --out {self.path}."
            )
        return dict(_read_json(self._study_file))

    def write_study(self, study: Mapping[str, Any]) -> None:
        """Record the study's configuration and progress."""
        write_json(self._study_file, study)

    def trial_path(self, spec: TrialSpec) -> Path:
        """Where a trial's files go."""
        return self.path / "trials" / spec.key

    def find(self, spec: TrialSpec) -> TrialRecord | None:
        """The record of that trial, if it has ended and its predictions are there."""
        path = self.trial_path(spec)
        if not (path / "trial.json").exists():
            return None
        record = TrialRecord(**_read_json(path / "trial.json"))
        return record if record.status == "diverged" or (path / "predictions.npz").exists() else None

    def finish(self, spec: TrialSpec, record: TrialRecord, predictions: Predictions | None) -> None:
        """Keep a trial that ended; its checkpoint is of no more use."""
        path = self.trial_path(spec)
        if predictions is not None:
            predictions.save(path / "predictions.npz")
        write_json(path / "trial.json", record.__dict__)
        (path / "checkpoint.pt").unlink(missing_ok=True)

    def ended_trials(self, phase: Phase) -> Iterator[tuple[TrialRecord, Path]]:
        """All trials of a phase that ended, by setting, with the path of their predictions."""
        found = []
        for file in sorted((self.path / "trials").glob(f"{phase}-*/trial.json")):
            record = TrialRecord(**_read_json(file))
            if record.status == "diverged" or (file.parent / "predictions.npz").exists():
                found.append((record, file.parent / "predictions.npz"))
        yield from sorted(found, key=lambda item: (sorted(item[0].setting.items()), item[0].identity["replicates"]))

    def save_checkpoint(self, spec: TrialSpec, state: Mapping[str, Any]) -> None:
        """Keep a running trial's state."""
        path = self.trial_path(spec)
        path.mkdir(parents=True, exist_ok=True)
        torch.save(dict(state), path / "checkpoint.tmp")
        (path / "checkpoint.tmp").replace(path / "checkpoint.pt")

    def load_checkpoint(self, spec: TrialSpec) -> dict[str, Any] | None:
        """A running trial's last state; a damaged one is left aside with a warning, and the trial starts anew."""
        path = self.trial_path(spec) / "checkpoint.pt"
        if not path.exists():
            return None
        try:
            return dict(torch.load(path, weights_only=True, map_location="cpu"))
        except Exception as error:
            warnings.warn(f"The checkpoint {path} is damaged ({error}); this trial starts anew.", stacklevel=2)
            return None


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); delete it and run the study with --resume.") from None


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(content, indent=2) + "\n")
    temporary.replace(path)

"""A study's folder: its configuration, and for every trial its record, predictions and, while it runs, a checkpoint."""

import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from ensgap.errors import UserError
from ensgap.hyperparameters import Value, order_of
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
    files: list[str] = field(default_factory=lambda: ["predictions"])  # its .npz files; none if it diverged
    details: dict[str, Any] = field(default_factory=dict)  # of early stopping: curves, epochs kept, steps

    @property
    def setting(self) -> dict[str, Value]:
        """The hyperparameters that were tried."""
        return dict(self.identity["setting"])


@dataclass(frozen=True)
class StudyFolder:
    """Reads and writes a study's folder; every file is written whole or not at all, and none is read with pickle."""

    path: Path
    shares_trials: bool = False  # with the study of the folder above: equal trials serve both

    @classmethod
    def of(cls, path: Path, study: str | None = None) -> "StudyFolder":
        """The folder of a study; in a folder that holds another study, a subfolder of its own that shares its trials.

        Without a study's name: the folder as it is.
        """
        folder = cls(path)
        if folder.exists() and study is not None and folder.read_study()["config"]["study"] != study:
            return cls(path / study, shares_trials=True)
        above = folder.exists() and not folder.trials.exists() and cls(path.parent).exists()
        return cls(path, shares_trials=above)

    @property
    def _study_file(self) -> Path:
        return self.path / "study.json"

    @property
    def trials(self) -> Path:
        """Where all trials are."""
        return (self.path.parent if self.shares_trials else self.path) / "trials"

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
        return self.trials / spec.key

    def find(self, spec: TrialSpec) -> TrialRecord | None:
        """The record of that trial, if it has ended and its predictions are there."""
        return self.find_key(spec.key)

    def find_key(self, key: str) -> TrialRecord | None:
        """The same, by the trial's key."""
        return self._ended(self.trials / key)

    def _ended(self, path: Path) -> TrialRecord | None:
        if not (path / "trial.json").exists():
            return None
        record = TrialRecord(**_read_json(path / "trial.json"))
        return record if all((path / f"{name}.npz").exists() for name in record.files) else None

    def finish(self, spec: TrialSpec, record: TrialRecord, predictions: Mapping[str, Predictions]) -> None:
        """Keep a trial that ended, with its predictions by name; its checkpoint is of no more use."""
        path = self.trial_path(spec)
        for name, found in predictions.items():
            found.save(path / f"{name}.npz")
        write_json(path / "trial.json", record.__dict__ | {"files": [*predictions]})
        (path / "checkpoint.pt").unlink(missing_ok=True)

    def ended_trials(self, phase: Phase) -> Iterator[tuple[TrialRecord, Path]]:
        """All trials of a phase that ended, by setting, each with its folder."""
        found = []
        for file in sorted(self.trials.glob(f"{phase}-*/trial.json")):
            record = self._ended(file.parent)
            if record is not None:
                found.append((record, file.parent))
        yield from sorted(found, key=lambda item: (order_of(item[0].setting), item[0].identity["replicates"]))

    def save_checkpoint(self, spec: TrialSpec, state: Mapping[str, Any]) -> None:
        """Keep a running trial's state."""
        path = self.trial_path(spec)
        path.mkdir(parents=True, exist_ok=True)
        torch.save(dict(state), path / "checkpoint.tmp")
        (path / "checkpoint.tmp").replace(path / "checkpoint.pt")

    def save_weights(self, spec: TrialSpec, rule: str, weights: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
        """Keep what a stopping rule chose, by `replicate/member`; `torch.load(…, weights_only=True)` reads it."""
        path = self.trial_path(spec)
        path.mkdir(parents=True, exist_ok=True)
        torch.save({name: dict(state) for name, state in weights.items()}, path / f"weights-{rule}.pt")

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

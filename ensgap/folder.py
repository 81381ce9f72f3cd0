"""A study's folder: its configuration, and for every trial its record, predictions and, while it runs, a checkpoint.

It is a folder on disk or a place in a bucket; see `storage`.
"""

import io
import json
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch

from ensgap.errors import UserError
from ensgap.hyperparameters import Value, order_of
from ensgap.predictions import Predictions
from ensgap.spec import Phase, TrialSpec
from ensgap.storage import Place, write_whole

Status = Literal["finished", "diverged", "failed", "pruned"]
"""Only a finished trial has predictions and can be selected. One that failed is tried again when the study is resumed;
a pruned one was stopped because others were better."""


class CheckpointWarning(UserWarning):
    """A checkpoint could not be used."""


@dataclass(frozen=True)
class TrialRecord:
    """What a trial that ended leaves behind beside its predictions."""

    identity: dict[str, Any]
    status: Status
    epochs: int  # trained
    seconds: float
    validation: dict[str, float]  # means over replicates at the end, for the search
    files: list[str] = field(default_factory=lambda: ["predictions"])  # its .npz files; none unless it finished
    details: dict[str, Any] = field(default_factory=dict)  # curves; of early stopping also epochs kept, steps

    @property
    def setting(self) -> dict[str, Value]:
        """The hyperparameters that were tried."""
        return dict(self.identity["setting"])


@dataclass(frozen=True)
class StudyFolder:
    """Reads and writes a study's folder; every file is written whole or not at all, and none is read with pickle."""

    path: Place
    shares_trials: bool = False  # with the study of the folder above: equal trials serve both
    out: Path | None = None  # where the report goes, if not here

    @classmethod
    def of(cls, path: Place, study: str | None = None, out: Path | None = None) -> "StudyFolder":
        """The folder of a study; in a folder that holds another study, a subfolder of its own that shares its trials.

        Without a study's name: the folder as it is.
        """
        folder = cls(path)
        if folder.exists() and study is not None and folder.read_study()["config"]["study"] != study:
            return cls(path / study, shares_trials=True, out=out and out / study)
        above = folder.exists() and not folder.trials.exists() and cls(path.parent).exists()
        return cls(path, shares_trials=above, out=out)

    @property
    def local(self) -> Path:
        """A folder on disk that belongs to the study: itself, or where its report goes; for logs of other tools."""
        if isinstance(self.path, Path):
            return self.path
        assert self.out is not None
        return self.out

    @property
    def report(self) -> Path:
        """Where the report goes."""
        return self.out or self.local

    def absolute(self) -> "StudyFolder":
        """The same for processes that work elsewhere."""
        return replace(self, path=self.path.resolve()) if isinstance(self.path, Path) else self

    @property
    def _study_file(self) -> Place:
        return self.path / "study.json"

    @property
    def trials(self) -> Place:
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

    def trial_path(self, spec: TrialSpec) -> Place:
        """Where a trial's files go."""
        return self.trials / spec.key

    def find(self, spec: TrialSpec) -> TrialRecord | None:
        """The record of that trial, if it has ended, did not fail, and its predictions are there."""
        return self.find_key(spec.key)

    def find_key(self, key: str) -> TrialRecord | None:
        """The same, by the trial's key."""
        record = self._recorded(self.trials / key)
        return None if record is None or record.status == "failed" else record

    def find_failure(self, key: str) -> TrialRecord | None:
        """The record of a trial that failed."""
        record = self._recorded(self.trials / key)
        return record if record is not None and record.status == "failed" else None

    def _recorded(self, path: Place) -> TrialRecord | None:
        try:
            record = TrialRecord(**_read_json(path / "trial.json"))
        except FileNotFoundError:
            return None
        return record if all((path / f"{name}.npz").exists() for name in record.files) else None

    def finish(self, spec: TrialSpec, record: TrialRecord, predictions: Mapping[str, Predictions]) -> None:
        """Keep a trial that ended, with its predictions by name; its checkpoint is of no more use."""
        path = self.trial_path(spec)
        for name, found in predictions.items():
            found.save(path / f"{name}.npz")
        write_json(path / "trial.json", record.__dict__ | {"files": [*predictions]})
        for name in ("checkpoint.pt", "progress.json"):
            (path / name).unlink(missing_ok=True)
        for left in path.glob(".*.tmp"):  # of a process that was killed while it wrote
            left.unlink(missing_ok=True)

    def note_progress(self, spec: TrialSpec, progress: Mapping[str, float]) -> None:
        """Say how far a running trial is, for those who look from outside."""
        write_json(self.trial_path(spec) / "progress.json", progress)

    def fail(self, spec: TrialSpec, reason: str) -> None:
        """Record that a trial failed for good; a checkpoint stays, for another attempt."""
        record = TrialRecord(spec.identity(), "failed", 0, 0.0, {}, files=[], details={"reason": reason})
        write_json(self.trial_path(spec) / "trial.json", record.__dict__)

    def ended_trials(self, phase: Phase) -> Iterator[tuple[TrialRecord, Place]]:
        """All trials of a phase that ended and did not fail, by setting, each with its folder."""
        yield from (item for item in self._recorded_trials(phase) if item[0].status != "failed")

    def failed_trials(self, phase: Phase) -> Iterator[tuple[TrialRecord, Place]]:
        """All trials of a phase that failed, likewise."""
        yield from (item for item in self._recorded_trials(phase) if item[0].status == "failed")

    def _recorded_trials(self, phase: Phase) -> Iterator[tuple[TrialRecord, Place]]:
        found = []
        files: list[Place] = [*self.trials.glob(f"{phase}-*/trial.json")]
        for file in sorted(files, key=str):
            record = self._recorded(file.parent)
            if record is not None:
                found.append((record, file.parent))
        yield from sorted(found, key=lambda item: (order_of(item[0].setting), item[0].identity["replicates"]))

    def save_checkpoint(self, spec: TrialSpec, state: Mapping[str, Any]) -> None:
        """Keep a running trial's state."""
        _save_tensors(self.trial_path(spec) / "checkpoint.pt", dict(state))

    def save_weights(self, spec: TrialSpec, rule: str, weights: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
        """Keep what a stopping rule chose, by `replicate/member`; `torch.load(…, weights_only=True)` reads it."""
        content = {name: dict(state) for name, state in weights.items()}
        _save_tensors(self.trial_path(spec) / f"weights-{rule}.pt", content)

    def load_checkpoint(self, spec: TrialSpec) -> dict[str, Any] | None:
        """A running trial's last state; a damaged one is left aside with a warning, and the trial starts anew."""
        path = self.trial_path(spec) / "checkpoint.pt"
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:  # torch does not look at the checksums it wrote
                if archive.testzip() is not None:
                    raise ValueError("its checksums are wrong")
            return dict(torch.load(io.BytesIO(content), weights_only=True, map_location="cpu"))
        except Exception as error:
            warn_of_checkpoint(path, error)
            return None


def warn_of_checkpoint(path: Place, error: Exception) -> None:
    """Say that a trial starts anew, and why."""
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    warnings.warn(
        f"The checkpoint {path} is damaged ({reason}); this trial starts anew.", CheckpointWarning, stacklevel=2
    )


def _save_tensors(path: Place, content: Mapping[str, Any]) -> None:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_whole(path, buffer.getvalue())


def _read_json(path: Place) -> Any:
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); delete it and run the study with --resume.") from None


def write_json(path: Place, content: Mapping[str, Any]) -> None:
    """Write JSON, whole or not at all."""
    write_whole(path, (json.dumps(content, indent=2) + "\n").encode())

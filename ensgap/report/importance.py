"""How much each hyperparameter matters for each objective: fANOVA on the settings that were tried."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ensgap.gap import Array, Estimate
from ensgap.hyperparameters import Value
from ensgap.results.optima import SettingFigures, StudyResults

LEAST = 4
"""Fewer settings tell nothing about importance."""
WIDE = 50.0
"""Positive numbers whose largest is so many times the smallest, and far from the middle one, are taken as tried on a
log scale where the space is a function and does not tell."""


@dataclass(frozen=True)
class Axis:
    """A hyperparameter that differs between the settings tried."""

    name: str
    log: bool
    words: tuple[str, ...]  # the values of a choice; of a range none

    def place(self, value: Value) -> float:
        """Where a value stands on the axis."""
        if self.words:
            return float(self.words.index(str(value)))
        return math.log10(float(value)) if self.log else float(value)


def axes_of(results: StudyResults) -> list[Axis]:
    """The hyperparameters that differ, in the order of the space."""
    usable = [trial for trial in results.trials if trial.usable]
    space = results.config.get("space")
    known: Mapping[str, str] = space if isinstance(space, Mapping) else {}
    names = dict.fromkeys([*known, *(name for trial in usable for name in trial.setting)])
    found = []
    for name in names:
        values = [trial.setting[name] for trial in usable if name in trial.setting]
        if len(set(values)) > 1:
            found.append(_axis(name, values, str(known.get(name, ""))))
    return found


def _axis(name: str, values: Sequence[Value], domain: str) -> Axis:
    if domain.startswith("choice") or any(isinstance(value, str | bool) for value in values):
        ordered = sorted(set(values), key=lambda value: (isinstance(value, str), value))
        return Axis(name, False, tuple(str(value) for value in ordered))
    numbers = [float(value) for value in values]
    wide = min(numbers) > 0 and max(numbers) / min(numbers) > WIDE and 4 * np.median(numbers) < max(numbers)
    return Axis(name, domain.startswith("log") or (not domain and bool(wide)), ())


def importances(results: StudyResults, axes: Sequence[Axis], figure: str) -> dict[str, Estimate]:
    """Each hyperparameter's share of the variance of a figure (fANOVA, by Optuna), over replicates; nothing where there
    are too few settings. Hyperparameters that not every setting has are left out.
    """
    usable = [trial for trial in results.trials if trial.usable]
    common = [axis for axis in axes if all(axis.name in trial.setting for trial in usable)]
    if len(usable) < LEAST or len(common) < 2:
        return {}
    replicates = len(usable[0].replicates)
    shares = [_shares(usable, common, figure, replicate) for replicate in range(replicates)]
    return {axis.name: Estimate.of(np.array([share[axis.name] for share in shares])) for axis in common}


def _shares(trials: Sequence[SettingFigures], axes: Sequence[Axis], figure: str, replicate: int) -> Mapping[str, float]:
    import optuna  # here, because nothing else right of predictions needs it

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions: dict[str, Any] = {}
    for axis in axes:
        places = [axis.place(trial.setting[axis.name]) for trial in trials]
        if axis.words:
            distributions[axis.name] = optuna.distributions.CategoricalDistribution(axis.words)
        else:
            distributions[axis.name] = optuna.distributions.FloatDistribution(min(places), max(places))
    study = optuna.create_study()
    for trial, value in zip(trials, calm([t.figures[figure][replicate] for t in trials]), strict=True):
        params = {a.name: str(trial.setting[a.name]) if a.words else a.place(trial.setting[a.name]) for a in axes}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, value=float(value)))
    evaluator = optuna.importance.FanovaImportanceEvaluator(n_trees=32, max_depth=32, seed=0)
    return optuna.importance.get_param_importances(study, evaluator=evaluator)


def calm(values: Sequence[float] | Array) -> Array:
    """Values with hopeless ones brought down to somewhat above the better three quarters, lest they explain it all."""
    found = np.asarray(values, dtype=float)
    low, high = found.min(), np.quantile(found, 0.75)
    calmed: Array = np.minimum(found, high + 1.5 * (high - low))
    return calmed

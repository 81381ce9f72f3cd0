"""Optuna behind Ray Tune: two objectives, the grid's points first, and a journal that outlives the driver.

The journal, not Tune's pickled state, is what a resumed search continues from: finished trials stay, points that were
suggested but not finished are suggested again, and TPE goes on from there.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState
from ray.tune.search import Searcher
from ray.tune.search.optuna import OptunaSearch

from ensgap.losses import objective_names


class FixedPointsFirst(Searcher):
    """Suggests points that lie outside the sampler's space (a weight decay of 0 on a log scale), then asks on."""

    def __init__(self, points: Sequence[dict[str, float]], searcher: Searcher) -> None:
        super().__init__(metric=searcher.metric, mode=searcher.mode)
        self.points, self.inner = list(points), searcher
        self.own: set[str] = set()

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        """The next fixed point, or the searcher's choice."""
        if self.points:
            self.own.add(trial_id)
            return self.points.pop(0)
        suggestion: dict[str, Any] | None = self.inner.suggest(trial_id)
        return suggestion

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Tell the searcher of its own trials."""
        if trial_id not in self.own:
            self.inner.on_trial_complete(trial_id, result, error)

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the journal has it all."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing, likewise."""


def open_storage(journal: Path) -> JournalStorage:
    """The journal file, which Optuna's own tools read too."""
    return JournalStorage(JournalFileBackend(str(journal)))


def two_objective_search(
    journal: Path, study_name: str, grid: Sequence[float], seed: int, ended: Sequence[float], objective: str = "nll"
) -> Searcher:
    """The searcher of weight decays by an objective, of the average member and of the ensemble; `ended` are those whose
    trials the study's folder has.

    What the journal suggested but the folder does not have (its process died, it failed, its files were deleted) is
    suggested again before anything new.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    positive = [value for value in grid if value > 0]
    space: dict[str, BaseDistribution] = {"weight_decay": FloatDistribution(min(positive), max(positive), log=True)}
    storage = open_storage(journal)
    waiting: set[float] = set()
    if study_name in optuna.get_all_study_names(storage):
        study = optuna.load_study(study_name=study_name, storage=storage)
        trials = study.get_trials(deepcopy=False)
        for trial in trials:
            if trial.state == TrialState.RUNNING:
                study.tell(trial.number, state=TrialState.FAIL)
            elif trial.state == TrialState.WAITING:
                waiting.add(trial.system_attrs["fixed_params"]["weight_decay"])
        lost = dict.fromkeys(t.params["weight_decay"] for t in trials if t.params)
        for value in lost:
            if value not in ended and value not in waiting:
                study.enqueue_trial({"weight_decay": value})
                waiting.add(value)
    points = [{"weight_decay": value} for value in positive if value not in waiting and value not in ended]
    return OptunaSearch(
        space,
        metric=list(objective_names(objective)),
        mode=["min", "min"],
        points_to_evaluate=points,
        sampler=optuna.samplers.TPESampler(seed=seed + len(ended), constant_liar=True),
        study_name=study_name,
        storage=storage,
    )

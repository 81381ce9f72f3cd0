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

from ensgap.search.run import OBJECTIVES


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


def two_objective_search(journal: Path, study_name: str, grid: Sequence[float], seed: int) -> tuple[Searcher, int]:
    """The searcher of weight decays, and how many points of its journal are finished already."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    positive = [value for value in grid if value > 0]
    space: dict[str, BaseDistribution] = {"weight_decay": FloatDistribution(min(positive), max(positive), log=True)}
    storage = open_storage(journal)
    known: list[dict[str, float]] = []
    finished = 0
    if study_name in optuna.get_all_study_names(storage):
        study = optuna.load_study(study_name=study_name, storage=storage)
        for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            study.tell(trial.number, state=TrialState.FAIL)  # its process is gone; the point comes again
            study.enqueue_trial(trial.params)
        trials = study.get_trials(deepcopy=False)
        known = [trial.params or trial.system_attrs.get("fixed_params", {}) for trial in trials]
        finished = sum(trial.state == TrialState.COMPLETE for trial in trials)
    points = [{"weight_decay": value} for value in positive if {"weight_decay": value} not in known]
    sampler = optuna.samplers.TPESampler(seed=seed + finished, constant_liar=True)
    searcher = OptunaSearch(
        space,
        metric=list(OBJECTIVES),
        mode=["min", "min"],
        points_to_evaluate=points,
        sampler=sampler,
        study_name=study_name,
        storage=storage,
    )
    return searcher, finished

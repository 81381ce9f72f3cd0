"""Optuna behind Ray Tune: two objectives, the grid's points first, and a storage that outlives the driver.

The storage (a journal file or a database) and the study's folder, not Tune's pickled state, are what a resumed search
continues from: finished trials stay, points that were suggested but not finished are suggested again, and TPE goes on
from there.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import optuna
import ray.util.client
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.storages import BaseStorage
from optuna.trial import TrialState
from ray.tune.search import Searcher
from ray.tune.search.optuna import OptunaSearch

from ensgap.search.run import OBJECTIVES
from ensgap.search.spread import SpreadSampler


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
        """Nothing: the storage has it all."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing, likewise."""

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles its searcher into the results folder, where the address of a database, and the password in it,
        has no business; only a Ray client, which sends the searcher to its cluster, needs the whole.
        """
        whole = ray.util.client.ray.is_connected()
        return {name: value for name, value in self.__dict__.items() if whole or name != "inner"}


def two_objective_search(
    storage: BaseStorage, study_name: str, grid: Sequence[float], seed: int, ended: Mapping[float, Sequence[float]]
) -> Searcher:
    """The searcher of weight decays; `ended` are those whose trials the study's folder has, with both objectives.

    What was suggested but the folder does not have (its process died, it failed, its files were deleted) is suggested
    again before anything new. What the folder has but the storage does not know (it was lost, or is another one) is
    told to it.
    """
    positive = [value for value in grid if value > 0]
    space: dict[str, BaseDistribution] = {"weight_decay": FloatDistribution(min(positive), max(positive), log=True)}
    waiting: set[float] = set()
    known: set[float] = set()
    study = optuna.create_study(
        storage=storage, study_name=study_name, directions=["minimize"] * len(OBJECTIVES), load_if_exists=True
    )
    trials = study.get_trials(deepcopy=False)
    for trial in trials:
        if trial.state == TrialState.RUNNING:
            study.tell(trial.number, state=TrialState.FAIL)
        elif trial.state == TrialState.WAITING:
            waiting.add(trial.system_attrs["fixed_params"]["weight_decay"])
        elif trial.state == TrialState.COMPLETE:
            known.add(trial.params["weight_decay"])
    lost = dict.fromkeys(t.params["weight_decay"] for t in trials if t.params)
    for value in lost:
        if value not in ended and value not in waiting:
            study.enqueue_trial({"weight_decay": value})
            waiting.add(value)
    for value, objectives in ended.items():
        if value not in known and min(positive) <= value <= max(positive):
            point = {"weight_decay": value}
            study.add_trial(optuna.trial.create_trial(params=point, distributions=space, values=list(objectives)))
    points = [{"weight_decay": value} for value in positive if value not in waiting and value not in ended]
    tpe = optuna.samplers.TPESampler(seed=seed + len(ended), constant_liar=True)
    return OptunaSearch(
        space,
        metric=list(OBJECTIVES),
        mode=["min", "min"],
        points_to_evaluate=points,
        sampler=SpreadSampler(tpe),
        study_name=study_name,
        storage=storage,
    )

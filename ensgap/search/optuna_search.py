"""Optuna behind Ray Tune: two objectives, given points first, and a journal that outlives the driver.

The journal, not Tune's pickled state, is what a resumed search continues from: finished trials stay, points that were
suggested but not finished are suggested again, and TPE goes on from there.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState
from ray.tune.search import Searcher
from ray.tune.search.optuna import OptunaSearch

from ensgap.hyperparameters import Setting
from ensgap.search.run import OBJECTIVES

Space = Callable[[optuna.Trial], Setting]
"""Asks a trial for its values, one `suggest_…` after the other, and gives the setting that they make."""


class FixedPointsFirst(Searcher):
    """Suggests points that lie outside the sampler's space (a weight decay of 0 on a log scale), then asks on."""

    def __init__(self, points: Sequence[Setting], searcher: Searcher) -> None:
        super().__init__(metric=searcher.metric, mode=searcher.mode)
        self.points, self.inner = list(points), searcher
        self.own: set[str] = set()

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        """The next fixed point, or the searcher's choice."""
        if self.points:
            self.own.add(trial_id)
            return {"point": dict(self.points.pop(0))}
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
    journal: Path,
    study_name: str,
    space: Space,
    seed: int,
    ended: Sequence[Setting],
    first: Sequence[Setting] = (),
    at_random: bool = False,
) -> Searcher:
    """The searcher of a space; `ended` are the settings whose trials the study's folder has, `first` are points of the
    space to begin with. A suggestion's `point` is the setting.

    What the journal suggested but the folder does not have (its process died, it failed, its files were deleted) is
    suggested again before anything new.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = open_storage(journal)
    waiting: list[dict[str, Any]] = []
    if study_name in optuna.get_all_study_names(storage):
        study = optuna.load_study(study_name=study_name, storage=storage)
        trials = study.get_trials(deepcopy=False)
        for trial in trials:
            if trial.state == TrialState.RUNNING:
                study.tell(trial.number, state=TrialState.FAIL)
            elif trial.state == TrialState.WAITING:
                waiting.append(trial.system_attrs["fixed_params"])
        for trial in trials:
            if trial.params and _setting(trial) not in ended and trial.params not in waiting:
                study.enqueue_trial(trial.params)
                waiting.append(trial.params)

    def point(trial: optuna.Trial) -> dict[str, Any]:
        setting = dict(space(trial))
        trial.set_user_attr("setting", setting)
        return {"point": setting}

    samplers = optuna.samplers
    sampler = samplers.RandomSampler if at_random else lambda seed: samplers.TPESampler(seed=seed, constant_liar=True)
    return OptunaSearch(
        point,
        metric=list(OBJECTIVES),
        mode=["min", "min"],
        points_to_evaluate=[dict(setting) for setting in first if setting not in [*waiting, *ended]],
        sampler=sampler(seed + len(ended)),
        study_name=study_name,
        storage=storage,
    )


def _setting(trial: FrozenTrial) -> Setting:
    """What a trial of the journal tried; journals of before there were spaces have it in the parameters only."""
    setting: Setting = trial.user_attrs.get("setting", trial.params)
    return setting

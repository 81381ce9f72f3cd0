"""Optuna behind Ray Tune: two objectives, given points first, and a storage that outlives the driver.

The storage (a journal file or a database) and the study's folder, not Tune's pickled state, are what a resumed search
continues from: finished trials stay, points that were suggested but not finished are suggested again, and TPE goes on
from there.
"""

from collections.abc import Callable, Sequence
from typing import Any

import optuna
import ray.util.client
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState
from ray.tune.search import Searcher
from ray.tune.search.optuna import OptunaSearch

from ensgap.hyperparameters import Setting
from ensgap.losses import objective_names
from ensgap.search.spread import SpreadSampler

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
    storage: BaseStorage,
    study_name: str,
    space: Space,
    seed: int,
    ended: Sequence[tuple[Setting, Sequence[float]]],
    first: Sequence[Setting] = (),
    at_random: bool = False,
    objectives: tuple[str, str] = objective_names("nll"),
) -> Searcher:
    """The searcher of a space; `ended` are the settings whose trials the study's folder has, with both objectives, and
    `first` are points of the space to begin with. A suggestion's `point` is the setting.

    What was suggested but the folder does not have (its process died, it failed, its files were deleted) is suggested
    again before anything new. What the folder has but the storage does not know (it was lost, or is another one) is
    told to it.
    """
    study = optuna.create_study(
        storage=storage, study_name=study_name, directions=["minimize"] * len(objectives), load_if_exists=True
    )
    tried = [setting for setting, _ in ended]
    trials = study.get_trials(deepcopy=False)
    for trial in trials:
        if trial.state == TrialState.RUNNING:
            study.tell(trial.number, state=TrialState.FAIL)
    waiting = [t.system_attrs["fixed_params"] for t in trials if t.state == TrialState.WAITING]
    for trial in trials:
        if trial.params and _setting(trial) not in tried and trial.params not in waiting:
            study.enqueue_trial(trial.params)
            waiting.append(trial.params)
    known = [_setting(trial) for trial in trials if trial.state == TrialState.COMPLETE]
    for setting, values in ended:
        if setting not in known:
            _tell(study, space, setting, values)

    def point(trial: optuna.Trial) -> dict[str, Any]:
        setting = dict(space(trial))
        trial.set_user_attr("setting", setting)
        return {"point": setting}

    tpe = optuna.samplers.TPESampler(seed=seed + len(ended), constant_liar=True)
    return OptunaSearch(
        point,
        metric=list(objectives),
        mode=["min", "min"],
        points_to_evaluate=[dict(setting) for setting in first if setting not in [*waiting, *tried]],
        sampler=optuna.samplers.RandomSampler(seed=seed + len(ended)) if at_random else SpreadSampler(tpe),
        study_name=study_name,
        storage=storage,
    )


def _setting(trial: FrozenTrial) -> Setting:
    """What a trial of the storage tried; those of before there were spaces have it in the parameters only."""
    setting: Setting = trial.user_attrs.get("setting", trial.params)
    return setting


def _tell(study: optuna.Study, space: Space, setting: Setting, objectives: Sequence[float]) -> None:
    """Add a trial that ended, if the space could have suggested it under the names that the setting has."""
    fixed = optuna.trial.FixedTrial(dict(setting))
    try:
        if space(fixed) != setting:  # type: ignore[arg-type]
            return
        trial = optuna.trial.create_trial(
            params=fixed.params,
            distributions=fixed.distributions,
            values=list(objectives),
            user_attrs={"setting": dict(setting)},
        )
    except ValueError:  # outside the space, as a weight decay of 0 is, or made from parameters of other names
        return
    study.add_trial(trial)

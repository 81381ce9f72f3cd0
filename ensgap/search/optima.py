"""What the studies do that look for both optima: search, selection on validation data, retraining, test."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ensgap.config import StudyConfig
from ensgap.errors import UserError
from ensgap.folder import StudyFolder
from ensgap.holdout import replicate_holdouts
from ensgap.hyperparameters import Setting, order_of
from ensgap.losses import hopeless, objective_names
from ensgap.plans.optima import SearchPlan
from ensgap.points import Points
from ensgap.results.optima import read_settings, select_settings
from ensgap.search.optuna_search import FixedPointsFirst, Space, two_objective_search
from ensgap.search.optuna_storage import open_storage, study_name
from ensgap.search.study import run_study
from ensgap.search.tuner import Runner
from ensgap.tasks import TaskData


def find_optima(
    plan: SearchPlan,
    config: StudyConfig,
    search: Callable[[Runner], None],
    look: Callable[[Points], dict[str, Any]] = lambda _: {},
    command: str | None = None,
) -> StudyFolder:
    """Run a study, or what is missing of it, and write its report; `search` trains the settings to choose from, `look`
    has a look at the pool before anything is started, and what it returns is recorded.
    """

    def check(pool: Points) -> dict[str, Any]:
        replicate_holdouts(pool.labels, plan.seed, range(plan.replicates), plan.members, plan.holdout)
        if plan.optuna_storage is not None:
            open_storage(plan.optuna_storage)
        return look(pool)

    def train(runner: Runner, data: TaskData) -> None:
        runner = replace(runner, objective=plan.objective)
        search(replace(runner, prune=plan.prune))
        _retrain(plan, runner, data)

    return run_study(plan, config, check, train, command)[1]


def ask_optuna(
    plan: SearchPlan,
    runner: Runner,
    space: Space,
    first: Sequence[Setting] = (),
    outside: Sequence[Setting] = (),
    at_random: bool = False,
    mark: str = "",
) -> None:
    """Try what Optuna suggests until the plan has its samples: `outside` are points that lie outside the space, `first`
    points inside it. `mark` tells Optuna's studies of different spaces apart.
    """
    records = [record for record, _ in runner.folder.ended_trials("search")]
    storage = open_storage(plan.optuna_storage or runner.folder.local / "optuna.journal")
    by = "" if plan.objective == "nll" else f"-{plan.objective}"  # what another objective found is of no use
    name = study_name(runner.folder.path, f"{plan.study}-{plan.task.name}{by}", plan.optuna_storage) + mark
    names = objective_names(plan.objective)
    figures = [(record.setting, hopeless(plan.task.loss) | record.validation) for record in records]
    ended = [(setting, [values[name] for name in names]) for setting, values in figures]
    searcher = two_objective_search(storage, name, space, plan.seed, ended, first, at_random, names)
    fixed = [setting for setting in outside if all(setting != record.setting for record in records)]
    samples = plan.num_samples - len(records)
    runner.run_search(plan.search_trial({}), FixedPointsFirst(fixed, searcher), samples)


def settings_tried(runner: Runner) -> int:
    """How many, those that failed among them."""
    return len([*runner.folder.ended_trials("search"), *runner.folder.failed_trials("search")])


def require_samples(plan: SearchPlan, runner: Runner) -> None:
    """Stop here unless as many settings as asked for have been tried."""
    found = settings_tried(runner)
    if found < plan.num_samples:
        raise UserError(f"{plan.num_samples - found} of {plan.num_samples} trials failed; {runner.where_errors_are}.")


def _retrain(plan: SearchPlan, runner: Runner, data: TaskData) -> None:
    """Only what selection chose, and what was to be tested in any case, meets the test data."""
    trials = read_settings(runner.folder, "search")
    selection = select_settings(trials, plan.objective)
    chosen = {
        order_of(setting): setting
        for setting in (
            trials[selection.ind.trial].setting,
            trials[selection.ens.trial].setting,
            *plan.settings_to_test(),
        )
    }
    specs = [spec for _, setting in sorted(chosen.items()) for spec in plan.test_trials(setting)]
    runner.run_grid(specs, data.test)

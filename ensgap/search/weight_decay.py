"""The weight-decay study: search, selection on validation data, retraining and test, report."""

from dataclasses import replace
from typing import Any

from ensgap.errors import UserError
from ensgap.holdout import replicate_holdouts
from ensgap.plans.weight_decay import WeightDecayConfig, WeightDecayPlan
from ensgap.points import Points
from ensgap.report.weight_decay import headline
from ensgap.results.weight_decay import StudyResults, read_results, read_settings, select_settings
from ensgap.search.optuna_search import FixedPointsFirst, two_objective_search
from ensgap.search.study import chosen_task, only_asked, run_study
from ensgap.search.tuner import Runner
from ensgap.tasks import TaskData


def run(config: WeightDecayConfig) -> None:
    """What `studies/weight_decay.py` does."""
    if not only_asked(config, config.plan):
        results = weight_decay_study(config)
        print(f"\n{headline(results)}\n\nThe whole report: {results.config['out']}/report.html")


def weight_decay_study(config: WeightDecayConfig) -> StudyResults:
    """Run a study, or what is missing of it, and write its report."""
    plan = config.plan(chosen_task(config))

    def check(pool: Points) -> dict[str, Any]:
        trial = plan.search_trial(0.0)
        replicate_holdouts(pool.labels, plan.seed, trial.replicates, plan.members, plan.holdout)
        return {}

    def train(runner: Runner, data: TaskData) -> None:
        runner = replace(runner, objective=plan.objective)
        _search(plan, runner)
        _retrain(plan, runner, data)

    _, folder = run_study(plan, config, check, train)
    return read_results(folder)


def _search(plan: WeightDecayPlan, runner: Runner) -> None:
    grid = [plan.search_trial(value) for value in plan.grid]
    if plan.search == "grid":
        runner.run_grid(grid)
        return
    ended = [record.setting["weight_decay"] for record, _ in runner.folder.ended_trials("search")]
    journal = runner.folder.path / "optuna.journal"
    name = f"{plan.study}-{plan.task.name}" + ("" if plan.objective == "nll" else f"-{plan.objective}")
    searcher = two_objective_search(journal, name, plan.grid, plan.seed, ended, plan.objective)
    fixed = [{"weight_decay": 0.0}] if 0.0 not in ended else []
    runner.run_search(grid[0], FixedPointsFirst(fixed, searcher), plan.num_samples - len(ended))
    runner.run_grid(grid)  # what a larger grid adds to a study that already has its samples
    found = len(list(runner.folder.ended_trials("search")))
    if found < plan.num_samples:
        raise UserError(f"{plan.num_samples - found} of {plan.num_samples} trials failed; {runner.where_errors_are}.")


def _retrain(plan: WeightDecayPlan, runner: Runner, data: TaskData) -> None:
    """Only what selection chose meets the test data."""
    trials = read_settings(runner.folder, "search")
    selection = select_settings(trials, plan.objective)
    chosen = {trials[choice.trial].weight_decay for choice in (selection.ind, selection.ens)}
    specs = [spec for value in sorted(chosen) for spec in plan.test_trials(value)]
    runner.run_grid(specs, data.test)

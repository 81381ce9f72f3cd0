"""The weight-decay study: a grid of weight decays, or the grid first and then Optuna between its ends."""

from ensgap.plans.weight_decay import WeightDecayConfig, WeightDecayPlan
from ensgap.report.report import say_scaled_down
from ensgap.report.weight_decay import headline
from ensgap.results.optima import StudyResults, read_results
from ensgap.search.optima import ask_optuna, find_optima, require_samples
from ensgap.search.optuna_search import Space
from ensgap.search.study import chosen_task, only_asked
from ensgap.search.tuner import Runner


def run(config: WeightDecayConfig) -> None:
    """What `studies/weight_decay.py` does."""
    if not only_asked(config, config.plan):
        results = weight_decay_study(config)
        answer = say_scaled_down(results.config, headline(results))
        print(f"\n{answer}\n\nThe whole report: {results.config['out']}/report.html")


def weight_decay_study(config: WeightDecayConfig) -> StudyResults:
    """Run a study, or what is missing of it, and write its report."""
    plan = config.plan(chosen_task(config))
    return read_results(find_optima(plan, config, lambda runner: _search(plan, runner)))


def between(low: float, high: float) -> Space:
    """Weight decays on a log scale."""
    return lambda trial: {"weight_decay": trial.suggest_float("weight_decay", low, high, log=True)}


def _search(plan: WeightDecayPlan, runner: Runner) -> None:
    grid = [spec for value in plan.grid for spec in plan.search_trials({"weight_decay": value})]
    if plan.search == "grid":
        runner.run_grid(grid)
        return
    zero, *positive = ({"weight_decay": value} for value in plan.grid)
    ask_optuna(plan, runner, between(plan.grid[1], plan.grid[-1]), first=positive, outside=[zero])
    runner.run_grid(grid)  # what a larger grid adds to a study that already has its samples
    require_samples(plan, runner)

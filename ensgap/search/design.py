"""Runs the studies of a design: temperature, early stopping, BatchEnsemble."""

from itertools import groupby
from typing import Any

from ensgap.plans.design import DesignPlan
from ensgap.plans.design_config import BatchEnsembleConfig, EarlyStoppingConfig, TemperatureConfig
from ensgap.points import Points
from ensgap.report.report import Report
from ensgap.search.study import chosen_task, only_asked, run_study
from ensgap.search.tuner import Runner
from ensgap.spec import TrialSpec
from ensgap.tasks import TaskData


def run(config: TemperatureConfig | EarlyStoppingConfig | BatchEnsembleConfig) -> None:
    """What the study's script does."""
    if not only_asked(config, config.plan):
        plan = config.plan(chosen_task(config))
        report, where = design_study(plan, config)
        print(f"\n{report.headline}\n\nThe whole report: {where}/report.html")


def design_study(
    plan: DesignPlan, config: TemperatureConfig | EarlyStoppingConfig | BatchEnsembleConfig
) -> tuple[Report, str]:
    """Run a study, or what is missing of it, and write its report; the report, and where it is."""
    planned: list[TrialSpec] = []

    def check(pool: Points) -> dict[str, Any]:
        holdouts, notes = plan.feasible(pool.labels)
        planned.extend(plan.trials(holdouts))
        for sentence in notes:
            print(sentence, flush=True)
        return {"trials": [spec.key for spec in planned], "notes": notes}

    def train(runner: Runner, data: TaskData) -> None:
        for _, specs in groupby(planned, key=lambda spec: spec.stopping):
            runner.run_grid(list(specs), data.test)

    report, folder = run_study(plan, config, check, train)
    return report, str(folder.report)

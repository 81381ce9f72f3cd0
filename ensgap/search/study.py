"""The weight-decay study from end to end: search, selection on validation data, retraining and test, report."""

import json
import time
from dataclasses import replace

import numpy as np
import torch

from ensgap.cli import command_line
from ensgap.config import StudyConfig
from ensgap.errors import UserError
from ensgap.folder import StudyFolder
from ensgap.holdout import replicate_holdouts, stratified_order
from ensgap.plan import StudyPlan
from ensgap.points import Points
from ensgap.report import write_report
from ensgap.report.summary import headline
from ensgap.results import StudyResults, read_settings, select_settings, versions
from ensgap.search.optuna_search import FixedPointsFirst, two_objective_search
from ensgap.search.session import LocalRay
from ensgap.search.tuner import Runner
from ensgap.seeds import POOL, derive_seed
from ensgap.tasks import TASKS, Task, TaskData, get_task


def run(config: StudyConfig) -> None:
    """What `studies/weight_decay.py` does."""
    if config.list_tasks:
        for task in TASKS.values():
            print(f"{task.name:12} {task.title}, {task.defaults.members} members")
    elif config.print_config:
        print(json.dumps(config.plan(chosen_task(config)).to_json(), indent=2))
    else:
        results = weight_decay_study(config)
        print(f"\n{headline(results)}\n\nThe whole report: {results.config['out']}/report.html")


def chosen_task(config: StudyConfig) -> Task:
    """The task that a configuration names, with the hidden layers it asks for."""
    task = get_task(config.task)
    if config.hidden_layers is None:
        return task
    if task.with_layers is None:
        raise UserError(f"--hidden-layers is for covertype; the network of {task.name} has no such option.")
    return task.with_layers(config.hidden_layers)


def weight_decay_study(config: StudyConfig) -> StudyResults:
    """Run a study, or what is missing of it, and write its report."""
    plan = config.plan(chosen_task(config))
    with LocalRay(config.cpus_per_trial, config.gpus_per_trial, config.concurrency) as ray:
        data = share_of(plan.task.load(config.data_dir), plan)
        trial = plan.search_trial(0.0)  # an impossible holdout is found before anything is written or started
        replicate_holdouts(data.pool.labels, plan.seed, trial.replicates, plan.members, plan.holdout)
        folder = _open_folder(plan, data, config.resume)
        study = folder.read_study()
        started, spent = time.perf_counter(), float(study["seconds"])
        runner = Runner(folder, plan.task, data.pool, ray, config.kernels)
        try:
            _search(plan, runner)
            _retrain(plan, runner, data)
        finally:
            folder.write_study(study | {"seconds": spent + time.perf_counter() - started})
    return write_report(folder)


def share_of(data: TaskData, plan: StudyPlan) -> TaskData:
    """The stratified share of the pool that the study uses; a smoke run takes that share of the test data too."""

    def some(points: Points) -> Points:
        rng = np.random.default_rng(derive_seed(0, POOL))
        order = stratified_order(points.labels.numpy(), rng)[: max(1, round(plan.train_fraction * len(points)))]
        return points.subset(torch.from_numpy(np.sort(order)))

    if plan.train_fraction == 1:
        return data
    return replace(data, pool=some(data.pool), test=some(data.test) if plan.smoke else data.test)


def _open_folder(plan: StudyPlan, data: TaskData, resume: bool) -> StudyFolder:
    """The study's folder, new or to be continued; a study that is there already is never overwritten."""
    folder = StudyFolder(plan.out)
    study = {
        "config": plan.to_json(),
        "data": {"pool": len(data.pool), "test": len(data.test), "notes": list(data.notes)},
        "command": command_line(),
        "versions": versions(),
        "seconds": 0.0,
    }
    try:
        if not folder.exists():
            folder.write_study(study)
        elif resume:
            recorded = folder.read_study()
            plan.check_continues(recorded["config"])
            if recorded["data"] != study["data"]:
                raise UserError(
                    f"The data is not what the study in {plan.out} was run with ({recorded['data']}, now "
                    f"{study['data']}); name its --data-dir, or choose another --out."
                )
            folder.write_study(study | {"seconds": recorded["seconds"]})
        else:
            raise UserError(f"{plan.out} already holds a study; continue it with --resume, or choose another --out.")
    except OSError as error:
        raise UserError(f"The folder {plan.out} cannot be written ({error.strerror}); choose another --out.") from None
    return folder


def _search(plan: StudyPlan, runner: Runner) -> None:
    grid = [plan.search_trial(value) for value in plan.grid]
    if plan.search == "grid":
        runner.run_grid(grid)
        return
    ended = [record.setting["weight_decay"] for record, _ in runner.folder.ended_trials("search")]
    journal = runner.folder.path / "optuna.journal"
    searcher = two_objective_search(journal, f"{plan.study}-{plan.task.name}", plan.grid, plan.seed, ended)
    fixed = [{"weight_decay": 0.0}] if 0.0 not in ended else []
    runner.run_search(grid[0], FixedPointsFirst(fixed, searcher), plan.num_samples - len(ended))
    runner.run_grid(grid)  # what a larger grid adds to a study that already has its samples
    found = len(list(runner.folder.ended_trials("search")))
    if found < plan.num_samples:
        raise UserError(f"{plan.num_samples - found} of {plan.num_samples} trials failed; {runner.where_errors_are}.")


def _retrain(plan: StudyPlan, runner: Runner, data: TaskData) -> None:
    """Only what selection chose meets the test data."""
    trials = read_settings(runner.folder, "search")
    selection = select_settings(trials)
    chosen = {trials[choice.trial].weight_decay for choice in (selection.ind, selection.ens)}
    specs = [spec for value in sorted(chosen) for spec in plan.test_trials(value)]
    runner.run_grid(specs, data.test)

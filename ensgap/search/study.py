"""The weight-decay study from end to end: search, selection on validation data, retraining and test, report."""

import time

from ensgap.cli import command_line
from ensgap.config import StudyConfig, check_same_study
from ensgap.errors import UserError
from ensgap.folder import StudyFolder
from ensgap.holdout import replicate_holdouts
from ensgap.report import write_report
from ensgap.report.summary import headline
from ensgap.results import StudyResults, read_settings, select_settings, versions
from ensgap.search.optuna_search import FixedPointsFirst, two_objective_search
from ensgap.search.session import LocalRay
from ensgap.search.tuner import Runner
from ensgap.tasks import TASKS, Task, TaskData, get_task


def run(config: StudyConfig) -> None:
    """What `studies/weight_decay.py` does."""
    if config.list_tasks:
        for task in TASKS.values():
            print(f"{task.name:12} {task.title}, {task.members} members")
        return
    config = config.resolved(get_task(config.task))
    results = weight_decay_study(config)
    print(f"\n{headline(results)}\n\nReport: {config.out}/report.html (also report.md, tables, figures, summary.json)")


def weight_decay_study(config: StudyConfig) -> StudyResults:
    """Run a study, or what is missing of it, and write its report."""
    task = get_task(config.task)
    config = config.resolved(task)
    with LocalRay(config.cpus_per_trial, config.concurrency) as ray:
        data = task.load(config.data_dir)
        _check_holdout(config, task, data)
        folder = _open_folder(config)
        study = folder.read_study()
        started, spent = time.perf_counter(), float(study["seconds"])
        try:
            runner = Runner(folder, task, data.pool, ray)
            _search(config, task, runner)
            _retrain(config, task, runner, data)
        finally:
            folder.write_study(study | {"seconds": spent + time.perf_counter() - started})
    return write_report(folder)


def _check_holdout(config: StudyConfig, task: Task, data: TaskData) -> None:
    """Find an impossible holdout before anything is written or started."""
    spec = config.trial(task, 0.0)
    assert spec.order is not None and spec.val_fraction is not None
    replicate_holdouts(data.pool.labels, spec.seed, spec.replicates, spec.members, spec.order, spec.val_fraction)


def _open_folder(config: StudyConfig) -> StudyFolder:
    """The study's folder, new or to be continued; a study that is there already is never overwritten."""
    assert config.out is not None
    folder = StudyFolder(config.out)
    study = {"config": config.to_json(), "command": command_line(), "versions": versions(), "seconds": 0.0}
    try:
        if not folder.exists():
            folder.write_study(study)
        elif config.resume:
            recorded = folder.read_study()
            check_same_study(config, recorded["config"])
            folder.write_study(study | {"seconds": recorded["seconds"]})
        else:
            raise UserError(f"{config.out} already holds a study; continue it with --resume, or choose another --out.")
    except OSError as error:
        raise UserError(f"The folder {config.out} cannot be written ({error.strerror}); choose another --out.") from None
    return folder


def _search(config: StudyConfig, task: Task, runner: Runner) -> None:
    assert config.grid is not None
    grid = [config.trial(task, value) for value in config.grid]
    if config.search == "grid":
        runner.run_grid(grid)
        return
    assert config.num_samples is not None
    journal = runner.folder.path / "optuna.journal"
    searcher, finished = two_objective_search(journal, f"{config.study}-{task.name}", config.grid, config.seed)
    zero = grid[0]
    fixed = [dict(zero.setting)] if runner.folder.find(zero) is None else []
    missing = config.num_samples - finished - (1 - len(fixed))
    runner.run_search(zero, FixedPointsFirst(fixed, searcher), missing)
    runner.require(grid)


def _retrain(config: StudyConfig, task: Task, runner: Runner, data: TaskData) -> None:
    """Only what selection chose meets the test data."""
    trials = read_settings(runner.folder, "search")
    selection = select_settings(trials)
    chosen = {trials[choice.trial].weight_decay for choice in (selection.ind, selection.ens)}
    specs = [spec for value in sorted(chosen) for spec in config.test_trials(task, value)]
    runner.run_grid(specs, data.test)

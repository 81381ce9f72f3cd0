"""What all studies do: find the task, open the folder, train what is missing with Ray, write the report."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ray import cloudpickle
from ray.tune import TuneError

from ensgap.cli import command_line
from ensgap.config import StudyConfig
from ensgap.errors import UserError
from ensgap.folder import StudyFolder
from ensgap.holdout import stratified_order
from ensgap.plans.plan import Plan, check_continues
from ensgap.points import Points
from ensgap.report import write_report
from ensgap.report.report import Report
from ensgap.search.cluster import ClusterRay
from ensgap.search.session import LocalRay
from ensgap.search.tuner import Runner
from ensgap.seeds import POOL, derive_seed
from ensgap.storage import Place, describe_trouble, is_lasting, open_place
from ensgap.tasks import TASKS, Task, TaskData, get_task
from ensgap.tasks.file import load_task_file, module_name
from ensgap.versions import versions


def only_asked(config: StudyConfig, plan: Callable[[Task], Plan]) -> bool:
    """Answer --list-tasks and --print-config, which run nothing; whether one of them was given."""
    if config.list_tasks:
        for task in TASKS.values():
            print(f"{task.name:12} {task.title}, {task.defaults.members} members")
    elif config.print_config:
        print(json.dumps(plan(chosen_task(config)).to_json(), indent=2))
    return config.list_tasks or config.print_config


def chosen_task(config: StudyConfig) -> Task:
    """The task that a configuration names, with the network it asks for."""
    if config.task.endswith(".py"):
        task = load_task_file(Path(config.task))
        cloudpickle.register_pickle_by_value(sys.modules[module_name(Path(config.task))])  # workers lack the file
    else:
        task = get_task(config.task)
    if config.hidden_layers is not None:
        if task.with_layers is None:
            raise UserError(f"--hidden-layers is for covertype; the network of {task.name} has no such option.")
        task = task.with_layers(config.hidden_layers)
    if config.hidden_features is not None:
        if task.with_width is None:
            raise UserError(f"--hidden-features is for nci1; the network of {task.name} has no such option.")
        task = task.with_width(config.hidden_features)
    return task


def run_study(
    plan: Plan,
    config: StudyConfig,
    check: Callable[[Points], dict[str, Any]],
    train: Callable[[Runner, TaskData], None],
    command: str | None = None,
) -> tuple[Report, StudyFolder]:
    """Check what the pool allows before anything is written or started, train what is missing, and write the report.

    What `check` returns is recorded in study.json, and so is the command: the one that was typed, if none is given.
    """
    place = open_place(config.storage) / plan.out.name if config.storage else plan.out
    with _session(config) as ray:
        data = share_of(plan.task.load(config.data_dir), plan)
        more = check(data.pool)
        more |= {"command": command or command_line()}
        with _writable(place):
            ray.check_storage(place)
            folder = _open_folder(plan, place, data, config.resume, more)
        study = folder.read_study()
        started, spent = time.perf_counter(), float(study["seconds"])
        try:
            how = (config.kernels, config.checkpoint_every, config.retries)
            with _writable(place, lasting=True):
                train(Runner(folder, plan.task, data.pool, ray, *how), data)
        finally:
            with suppress(OSError):  # if nothing can be written, what stopped the study says so
                folder.write_study(study | {"seconds": spent + time.perf_counter() - started})
    with _writable(folder.report):
        return write_report(folder), folder


def _session(config: StudyConfig) -> LocalRay | ClusterRay:
    wanted = (config.cpus_per_trial, config.gpus_per_trial, config.concurrency)
    return LocalRay(*wanted) if config.cluster is None else ClusterRay(config.cluster, *wanted)


def share_of(data: TaskData, plan: Plan) -> TaskData:
    """The stratified shares of the pool and of the test data that the study uses."""

    def some(points: Points, share: float) -> Points:
        if share == 1:
            return points
        rng = np.random.default_rng(derive_seed(0, POOL))
        order = stratified_order(points.labels.numpy(), rng)[: max(1, round(share * len(points)))]
        return points.subset(torch.from_numpy(np.sort(order)))

    return replace(data, pool=some(data.pool, plan.train_fraction), test=some(data.test, plan.test_fraction))


def _open_folder(plan: Plan, place: Place, data: TaskData, resume: bool, more: dict[str, Any]) -> StudyFolder:
    """The study's folder, new or to be continued; a study that is there already is never overwritten."""
    study = {
        "config": plan.to_json(),
        "data": {"pool": len(data.pool), "test": len(data.test), "notes": list(data.notes)}
        | ({"fingerprint": data.fingerprint} if data.fingerprint else {}),
        "versions": versions(),
        "seconds": 0.0,
    } | more
    if place != plan.out:
        study["storage"] = str(place)  # which has no password
    folder = StudyFolder.of(place, plan.study, None if place == plan.out else plan.out)
    if not folder.exists():
        folder.write_study(study)
    elif resume:
        recorded = folder.read_study()
        check_continues(plan, recorded["config"])
        if recorded["data"] != study["data"]:
            raise UserError(
                f"The data is not what the study in {folder.path} was run with ({recorded['data']}, now "
                f"{study['data']}); name its --data-dir, or choose another --out."
            )
        folder.write_study(study | {"seconds": recorded["seconds"]})
    else:
        raise UserError(f"{folder.path} already holds a study; continue it with --resume, or choose another --out.")
    return folder


@contextmanager
def _writable(place: Place, lasting: bool = False) -> Iterator[None]:
    """Within this, a place that cannot be written (`lasting`: a disk that is full or not to be written, whatever else
    may go wrong) ends the study with a sentence.
    """
    try:
        yield
    except OSError as error:
        if lasting and not is_lasting(error):
            raise
        raise UserError(describe_trouble(place, error)) from None
    except TuneError as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, OSError):
            cause = cause.__cause__
        if cause is None or not is_lasting(cause):
            raise
        raise UserError(describe_trouble(place, cause)) from None

"""`ensgap.tune`: any hyperparameters of any task, from Python; one call, the same study as from the shell."""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import optuna
import torch

from ensgap import space as spaces
from ensgap.errors import UserError
from ensgap.hyperparameters import check_values
from ensgap.plans.optima import SearchName
from ensgap.plans.tune import TuneConfig, TunePlan
from ensgap.points import Points, TensorPoints
from ensgap.result import TuneResult
from ensgap.results.optima import read_results
from ensgap.search.optima import ask_optuna, find_optima, require_samples, settings_tried
from ensgap.search.tuner import Runner
from ensgap.seeds import INIT, member_generators
from ensgap.space import Space
from ensgap.stack import OptimizerConfig
from ensgap.tasks import Task, get_task
from ensgap.tasks.own import OwnTask

ROUNDS = 3
"""A space with few settings left may suggest one again, which counts once; so often more are asked for."""
DRAWS = 20
"""Settings of the space that are looked at before the search begins."""


def tune(
    task: Task | str,
    space: Space,
    *,
    members: int | None = None,
    replicates: int | None = None,
    search: SearchName = "optuna",
    num_samples: int | None = None,
    out: str | Path | None = None,
    resume: bool = True,
    **options: Any,
) -> TuneResult:
    """Find the best setting for the average member and the best for the ensemble, and measure the gap between them.

    `space` has hyperparameters by name: of training (lr, weight_decay, label_smoothing, batch_size, epochs, optimizer,
    momentum, schedule) or arguments of the network's function; each with `ensgap.log`, `uniform`, `integer`, `choice`
    or one value. Or it is a function of an Optuna trial that returns the setting.

    The study is kept in `out` (default: reports/tune-<task>): the same call continues it, or returns at once if it is
    complete. Options are those of the study scripts, such as epochs, val_fraction, test_replicates or seed.
    """
    known = {field.name for field in fields(TuneConfig)} - {"task", "print_config", "list_tasks"}
    unknown = sorted(set(options) - known)
    if unknown:
        raise UserError(f"tune has no option {unknown[0]}; it has: {', '.join(sorted(known))}.")
    given = {"members": members, "replicates": replicates, "search": search, "num_samples": num_samples} | options
    given = {name: value for name, value in given.items() if value is not None}
    chosen = get_task(task) if isinstance(task, str) else task
    where = None if out is None else Path(out)
    try:
        config = TuneConfig(task=chosen.name, space=space, out=where, resume=resume, **given)
        plan = config.plan(chosen)
        command = _command(chosen.name, plan, given)
        folder = find_optima(plan, config, _searching(plan), lambda pool: _look(plan, pool), command)
        return TuneResult(read_results(folder), folder, plan.task)
    except UserError as error:
        raise UserError(_in_python(str(error))) from None


def _searching(plan: TunePlan) -> Callable[[Runner], None]:
    def search(runner: Runner) -> None:
        if plan.search == "grid":
            settings = spaces.grid_of(plan.space, plan.num_samples)
            runner.run_grid([spec for setting in settings for spec in plan.search_trials(setting)])
            return
        digest = hashlib.sha256(json.dumps(spaces.in_json(plan.space)).encode()).hexdigest()[:8]
        for _ in range(ROUNDS):
            if settings_tried(runner) < plan.num_samples:
                ask_optuna(plan, runner, _space(plan), at_random=plan.search == "random", mark=f"-{digest}")
        if not settings_tried(runner):
            require_samples(plan, runner)

    return search


def _space(plan: TunePlan) -> Callable[[optuna.Trial], dict[str, Any]]:
    """The space as a function of a trial, whose settings are checked."""

    def asked(trial: optuna.Trial) -> dict[str, Any]:
        setting = spaces.asked_of(plan.space, trial)
        check_values(setting)
        if plan.task.loss == "regression" and "label_smoothing" in setting:
            raise UserError("label_smoothing is for classes, and this task is a regression; leave it out of the space.")
        plan.task.at(setting)
        return setting

    return asked


def _look(plan: TunePlan, pool: Points) -> dict[str, Any]:
    """Try the space and the network before anything is started; which way members are computed, and why."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=plan.seed))
    settings = [_space(plan)(study.ask()) for _ in range(DRAWS)]
    if not isinstance(plan.task, OwnTask):
        return {}
    assert isinstance(pool, TensorPoints)
    optimizer = OptimizerConfig("sgd", lr=[0.1] * 2, weight_decay=[0.0] * 2)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    generators = member_generators(plan.seed, [0], 2, INIT)
    at = plan.task.at(settings[0])
    found = at.vectorized(generators, optimizer, device, "auto", plan.precision, pool)
    print(f"Members are computed by {found.way}: {found.why}.", flush=True)
    return {"way": found.way, "why": found.why}


def _command(task: str, plan: TunePlan, given: dict[str, Any]) -> str:
    """The call as one would write it again."""
    space = spaces.in_json(plan.space)
    if not isinstance(space, str):
        inside = [f"{name!r}: {'ensgap.' * ('(' in text)}{text}" for name, text in space.items()]
        space = "{" + ", ".join(inside) + "}"
    options = "".join(f", {name}={value!r}" for name, value in given.items() if not isinstance(value, Path))
    return f"ensgap.tune({task!r}, space={space}{options})"


def _in_python(text: str) -> str:
    """A sentence about flags as one about arguments."""
    return re.sub(r"--([a-z][a-z-]*)", lambda found: found[1].replace("-", "_"), text)

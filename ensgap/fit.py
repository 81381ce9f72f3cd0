"""Trains the ensemble to take home: at one of the two optima, on all data, with a temperature from the search."""

from dataclasses import replace
from typing import Literal

import torch
from torch import nn

from ensgap import calibrate
from ensgap.ensemble import Ensemble
from ensgap.errors import UserError
from ensgap.folder import StudyFolder
from ensgap.hyperparameters import in_words
from ensgap.points import TensorPoints
from ensgap.predictions import Predictions
from ensgap.results.optima import StudyResults, search_predictions
from ensgap.scale import fit_scale
from ensgap.search.run import TrialRun
from ensgap.spec import FIRST_FINAL_REPLICATE, TrialSpec
from ensgap.tasks import Task, TaskData
from ensgap.tasks.own import OwnTask
from ensgap.tasks.task import no_preparation

Calibration = Literal["joint", "individual", "pooled"]
CALIBRATIONS = ("joint", "individual", "pooled")


def fit(
    results: StudyResults,
    folder: StudyFolder,
    task: Task,
    which: Literal["ens", "ind"],
    how: Calibration | None,
    data: Literal["all", "pool"],
) -> Ensemble:
    """See TuneResult.fit."""
    if which not in ("ens", "ind") or data not in ("all", "pool"):
        raise UserError(f"which is 'ens' or 'ind' and data is 'all' or 'pool', however: {which!r} and {data!r}.")
    if how is not None and how not in CALIBRATIONS:
        raise UserError(f"calibrate is one of {', '.join(CALIBRATIONS)}, or None, however: {how!r}.")
    setting = (results.h_ens if which == "ens" else results.h_ind).setting
    points = _points(task, task.load(None), data)
    held_out = search_predictions(folder, setting)
    members, target = _train(TrialSpec.of(held_out.identity), folder, task, points)
    return Ensemble(
        members=members,
        classes=_classes(task),
        setting=setting,
        scaling=how or "none",
        temperature=_temperature(held_out, how),
        input_shape=tuple(points.inputs.shape[1:]),
        input_dtype=points.inputs.dtype,
        about={
            "task": task.name,
            "best_for": {"ens": "the ensemble", "ind": "the average member"}[which],
            "trained_on": len(points),
            "train": held_out.identity["train"],
            "seed": held_out.identity["seed"],
            "gap_nll": results.gap["nll"].mean,
            "versions": results.study["versions"],
        },
        target=target,
    )


def _classes(task: Task) -> tuple[object, ...]:
    if task.loss == "regression":
        return ()
    return task.class_names if isinstance(task, OwnTask) else tuple(range(task.classes))


def _temperature(held_out: Predictions, how: Calibration | None) -> float:
    """One for all members, for those to come are not those of the search; of a regression a scale."""
    if how is None:
        return 1.0
    if held_out.labels.is_floating_point():
        if how != "joint":
            raise UserError(
                f"A regression is calibrated by one joint scale; give calibrate='joint' or None, not {how!r}."
            )
        return float(fit_scale(held_out).log().mean().exp())
    return float(calibrate.fit(held_out, how, prior=calibrate.PRIOR).values.log().mean().exp())


def _points(task: Task, data: TaskData, which: str) -> TensorPoints:
    pool, test = data.pool, data.test
    if task.prepare is not no_preparation or not isinstance(pool, TensorPoints) or not isinstance(test, TensorPoints):
        raise UserError(f"fit is for tasks of your own and for digits; {task.name} prepares its inputs in its own way.")
    if which == "pool":
        return pool
    return TensorPoints(torch.cat([pool.inputs, test.inputs]), torch.cat([pool.labels, test.labels]))


def _train(
    searched: TrialSpec, folder: StudyFolder, task: Task, points: TensorPoints
) -> tuple[list[nn.Module], tuple[float, float] | None]:
    """Members as in the search, on all of these points, from seeds that neither search nor test has used; and, of a
    regression, what its targets were standardised with.
    """
    spec = replace(searched, phase="test", holdout=None, replicates=(FIRST_FINAL_REPLICATE,))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    run = TrialRun(spec, task, points, None, folder, device)
    for epoch in run.training.epochs():
        if epoch.diverged:
            raise UserError(
                f"Training on all data diverged at {in_words(spec.setting)}; fit the other optimum, or tune again."
            )
    networks = [run.task.member(None) for _ in range(spec.members)]
    for m, network in enumerate(networks):
        network.load_state_dict(
            run.training.stack.member_state(m), strict=False
        )  # batch norms' counters may be missing
    scale = run.training.scale
    target = None if scale is None else (float(scale.mean[0]), float(scale.std[0]))
    return [network.to(device).eval().requires_grad_(False) for network in networks], target

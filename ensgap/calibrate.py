"""Temperature scaling: five ways to divide an ensemble's logits by a temperature, as functions of predictions.

On tiny holdouts there often is no finite optimum (all points right: T → 0). A plain fit then ends at a bound, which is
flagged; a weak Gaussian prior on log T (σ = 1) cures it and fades as points are added.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from ensgap import metrics, newton
from ensgap.errors import UserError
from ensgap.losses import loss_of
from ensgap.predictions import Predictions

Scaling = Literal["none", "individual", "joint", "joint_per_member", "pooled"]
"""How temperatures are fitted and applied:

- `none`: T = 1.
- `individual`: one T per member, for the NLL of the member at the points it held out.
- `joint`: one T on all members' logits before averaging, for the ensemble's NLL.
- `joint_per_member`: one T per member, fitted together for the ensemble's NLL.
- `pooled`: one T on the log of the averaged probabilities, for the ensemble's NLL; the members stay as they are.

Under a holdout of order k < M the ensemble's NLL is that of each point's k held-out members.
"""
SCALINGS: tuple[Scaling, ...] = get_args(Scaling)
BOUND = 4.0
"""Temperatures stay within 1/4…4, unless asked otherwise. Where a finite optimum exists it mostly lies inside; where
none does (a holdout that is separable), wider bounds only make the blow-up worse."""
PRIOR = 1.0
"""σ of the weak prior on log T: T = 1/2.7…2.7 is one σ."""
CHUNK = 2**23
"""Ensembles are worked on in chunks of about this many logits (64 MB in float64)."""


@dataclass(frozen=True)
class Temperatures:
    """Fitted temperatures, by which logits are divided."""

    scaling: Scaling
    values: Tensor  # [ensembles, members], equal along members for joint; [ensembles, 1] for pooled; NaN if diverged
    at_bound: Tensor  # bool, same shape: no optimum within the bounds

    def part(self, start: int, stop: int) -> "Temperatures":
        """Those of some of the ensembles."""
        return Temperatures(self.scaling, self.values[start:stop], self.at_bound[start:stop])


def fit(predictions: Predictions, scaling: Scaling, prior: float | None = None, bound: float = BOUND) -> Temperatures:
    """The temperatures that minimise the summed NLL of held-out points, plus (log T)²/2σ² each if a prior σ is given.

    Joint scalings of a disjoint holdout (order 1) raise a UserError.
    """
    if loss_of(predictions.labels) == "regression":
        raise UserError("Temperatures divide the logits of classes; a regression takes `scale.fit_scale`.")
    if scaling not in SCALINGS:
        raise UserError(f"A scaling is one of {', '.join(SCALINGS)}, however: {scaling}.")
    if prior is not None and not prior > 0:
        raise UserError(f"The prior's width must be above 0, however: {prior:g}.")
    if not bound > 1:
        raise UserError(f"The bound of temperatures must be above 1, however: {bound:g}.")
    log_t = torch.cat([_fit(part, scaling, prior, bound) for _, part in _parts(predictions)])
    return Temperatures(scaling, log_t.exp(), log_t.abs() >= math.log(bound) - newton.TOLERANCE)


def apply(predictions: Predictions, temperatures: Temperatures) -> tuple[Tensor, Tensor]:
    """The scaled log-probabilities of the members [ensembles, members, points, classes] and of the ensemble [ensembles,
    points, classes]: under a holdout of order k < M, of each point's k held-out members.
    """
    members = _scaled(predictions, temperatures)
    return members.logits, _averaged(members, temperatures)


def figures(predictions: Predictions, temperatures: Temperatures) -> metrics.Figures:
    """The figures of scaled predictions, as `metrics.evaluate` gives them; diversity and ambiguity are the members', so
    pooled temperatures leave them as they are.
    """
    parts = []
    for rows, part in _parts(predictions):
        own = temperatures.part(rows.start, rows.stop)
        members = _scaled(part, own)
        values = metrics.evaluate(members)
        if own.scaling == "pooled" and members.order > 1:
            values |= metrics.ensemble_figures(_averaged(members, own), part.labels)
        parts.append(values)
    return {name: torch.cat([values[name] for values in parts]) for name in parts[0]}


def sweep(
    predictions: Predictions, log_t: Tensor, how: Literal["joint", "pooled"]
) -> dict[str, Tensor]:  # each [temperatures, ensembles]
    """The ensemble's NLL, error and ECE at given temperatures."""
    curves: dict[str, list[Tensor]] = {metric: [] for metric in metrics.METRICS}
    for u in log_t.tolist():
        values = torch.full((len(predictions.labels), 1), math.exp(u), dtype=torch.float64)
        if how == "joint":
            values = values.expand(-1, predictions.logits.shape[1])
        at = figures(predictions, Temperatures(how, values, torch.zeros_like(values, dtype=torch.bool)))
        for metric in metrics.METRICS:
            curves[metric].append(at[f"ensemble_{metric}"])
    return {metric: torch.stack(values) for metric, values in curves.items()}


def _parts(predictions: Predictions) -> Iterator[tuple[slice, Predictions]]:
    """Chunks of ensembles, small enough to work on."""
    count = max(1, CHUNK // max(1, predictions.logits[0].numel()))
    for start in range(0, len(predictions.labels), count):
        rows = slice(start, start + count)
        logits, labels, held = predictions.logits[rows], predictions.labels[rows], predictions.held[rows]
        yield rows, Predictions(logits, labels, held, predictions.index[rows])


def _fit(
    predictions: Predictions, scaling: Scaling, prior: float | None, bound: float
) -> Tensor:  # -> log T, shaped as `values`
    ensembles, members = predictions.held.shape[:2]
    if scaling == "none":
        return torch.zeros(ensembles, members, dtype=torch.float64)
    if scaling == "individual":
        logits, labels = predictions.by_member()  # each member of each ensemble is a problem of its own
        problems = newton.Problems.alone(logits.flatten(0, 1), labels.flatten(0, 1))
        return newton.shared_temperature(problems, prior, bound).view(ensembles, members)
    logits, labels = predictions.by_point()
    if scaling == "pooled":
        averaged = metrics.ensemble_log_probs(logits.double().log_softmax(-1))
        return newton.shared_temperature(newton.Problems.alone(averaged, labels), prior, bound).unsqueeze(1)
    problems = newton.Problems.build(logits, labels, predictions.holders(), members)
    if scaling == "joint":
        return newton.shared_temperature(problems, prior, bound).unsqueeze(1).repeat(1, members)
    return newton.own_temperatures(problems, prior, bound)


def _scaled(predictions: Predictions, temperatures: Temperatures) -> Predictions:
    """The predictions with each member's scaled log-probabilities for logits."""
    ensembles, members = predictions.held.shape[:2]
    pooled = temperatures.scaling == "pooled"
    expected = (ensembles, 1 if pooled else members)
    if tuple(temperatures.values.shape) != expected:
        raise ValueError(f"temperatures must have shape {expected}, however: {tuple(temperatures.values.shape)}")
    logits = predictions.logits.double()
    if not pooled:
        logits = logits / temperatures.values[:, :, None, None]
    return replace(predictions, logits=logits.log_softmax(-1))


def _averaged(members: Predictions, temperatures: Temperatures) -> Tensor:  # -> [ensembles, points, classes]
    log_probs = metrics.ensemble_log_probs(members.by_point()[0])
    if temperatures.scaling == "pooled":
        return (log_probs / temperatures.values[:, :, None]).log_softmax(-1)
    return log_probs

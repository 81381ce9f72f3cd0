"""Metrics of ensembles, vectorized: functions of log-probabilities [..., points, classes] and labels [..., points].

For targets of a regression the figures of the same names, and RMSE and coverage instead of error and ECE, are those of
`gaussian`.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from ensgap import gaussian
from ensgap.losses import loss_of
from ensgap.predictions import Predictions

ECE_BINS = 15
METRICS = ("nll", "error", "ece")
"""Of classes, as in the paper's tables; `losses.METRICS` has all there are."""
Figures = dict[str, Tensor]
"""Named figures, one value per ensemble (replicate) each."""


def nll(log_probs: Tensor, labels: Tensor) -> Tensor:  # -> [...]
    """Mean negative log-likelihood of the labels."""
    return -log_probs.gather(-1, labels.unsqueeze(-1)).squeeze(-1).mean(-1)


def error(log_probs: Tensor, labels: Tensor) -> Tensor:  # -> [...]
    """Share of points whose most likely class is not the label."""
    return (log_probs.argmax(-1) != labels).to(log_probs.dtype).mean(-1)


def ece(log_probs: Tensor, labels: Tensor) -> Tensor:  # -> [...]
    """Expected calibration error of the top label: L1 over 15 equal-width, right-closed confidence bins."""
    log_confidence, top = log_probs.max(-1)
    confidence = log_confidence.exp()
    edges = torch.linspace(0, 1, ECE_BINS + 1, dtype=confidence.dtype, device=confidence.device)[1:-1]
    bins = torch.bucketize(confidence.contiguous(), edges)
    surplus = (top == labels).to(confidence.dtype) - confidence  # accuracy − confidence, point by point
    sums = torch.zeros(*bins.shape[:-1], ECE_BINS, dtype=confidence.dtype, device=confidence.device)
    return sums.scatter_add_(-1, bins, surplus).abs().sum(-1) / labels.shape[-1]


def brier(log_probs: Tensor, labels: Tensor) -> Tensor:  # -> [...]
    """Mean squared distance between the probabilities and the label's one-hot vector, from 0 to 2."""
    probs = log_probs.exp()
    own = probs.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return (probs.square().sum(-1) - 2 * own + 1).mean(-1)


def entropy(log_probs: Tensor) -> Tensor:  # -> [...]
    """Mean entropy of the predictions, in nats."""
    return -(log_probs.exp() * log_probs).nan_to_num(0.0).sum(-1).mean(-1)


def ensemble_log_probs(log_probs: Tensor) -> Tensor:  # [ensembles, members, points, classes] -> [ensembles, points, …]
    """Log of the members' averaged probabilities."""
    return log_probs.logsumexp(1) - math.log(log_probs.shape[1])


def sub_ensembles(log_probs: Tensor) -> Iterator[tuple[int, Tensor]]:
    """For every size 1…M the averaged log-probabilities [ensembles, subsets, points, classes] of its M cyclic subsets
    {i, i+1, …} (one subset of size M). Every member stands in equally many subsets of a size, so size 1 is the average
    member and size M the ensemble.
    """
    members = log_probs.shape[1]
    total = log_probs
    for size in range(1, members + 1):
        if size > 1:
            total = torch.logaddexp(total, log_probs.roll(1 - size, dims=1))
        yield size, (total if size < members else total[:, :1]) - math.log(size)


def size_curves(predictions: Predictions) -> dict[str, Tensor]:
    """Every metric [sizes, ensembles] of sub-ensembles of every size, averaged over subsets; under a holdout of order
    k < M, of the members that hold a point out.
    """
    logits, labels = predictions.by_point()
    if loss_of(labels) == "regression":
        subsets = gaussian.sub_mixtures(logits.double())
        found = [gaussian.mixture_figures(members, labels.double().unsqueeze(1)) for members in subsets]
    else:
        found = []
        for _, log_probs in sub_ensembles(logits.double().log_softmax(-1)):
            found.append(_scores(log_probs, labels.unsqueeze(1).expand(log_probs.shape[:-1])))
    return {metric: torch.stack([values[metric].mean(1) for values in found]) for metric in found[0]}


def evaluate(predictions: Predictions) -> Figures:
    """All figures of every ensemble: the average member's, the ensemble's, diversity and ambiguity.

    Under a holdout of order k < M the ensemble's figures are those of each point's k held-out members; under order 1
    there are none, and only the average member's are given.
    """
    logits, labels = predictions.by_member()
    regression = loss_of(labels) == "regression"
    if regression:
        figures = gaussian.member_figures(logits.double(), labels.double())
    else:
        figures = member_figures(logits.double().log_softmax(-1), labels)
    if predictions.order == 1:
        return figures
    logits, labels = predictions.by_point()
    if regression:
        found = gaussian.mixture_figures(logits.double(), labels.double())
        figures |= {f"ensemble_{name}": values for name, values in found.items()}
    else:
        figures |= ensemble_figures(ensemble_log_probs(logits.double().log_softmax(-1)), labels)
        figures["brier_ambiguity"] = figures["avg_member_brier"] - figures["ensemble_brier"]
    figures["diversity"] = figures["ensemble_entropy"] - figures["avg_member_entropy"]
    figures["ambiguity"] = figures["avg_member_nll"] - figures["ensemble_nll"]
    return figures


def log_likelihoods(logits: Tensor, labels: Tensor) -> Tensor:  # [..., points, classes], [..., points] -> [..., points]
    """What each member gives the label of each point: the logarithm of its probability, or of a target's density."""
    if loss_of(labels) == "regression":
        return gaussian.log_density(logits.double(), labels.double())
    return logits.double().log_softmax(-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)


def member_figures(
    log_probs: Tensor, labels: Tensor
) -> Figures:  # [ensembles, members, points, classes], [E, M, points]
    """The average member's figures."""
    return {f"avg_member_{name}": values.mean(1) for name, values in _all(log_probs, labels).items()}


def ensemble_figures(log_probs: Tensor, labels: Tensor) -> Figures:  # [ensembles, points, classes], [ensembles, points]
    """The figures of the ensemble's own prediction."""
    return {f"ensemble_{name}": values for name, values in _all(log_probs, labels).items()}


def _all(log_probs: Tensor, labels: Tensor) -> Figures:
    return _scores(log_probs, labels) | {"entropy": entropy(log_probs)}


def _scores(log_probs: Tensor, labels: Tensor) -> Figures:
    scores = {"nll": nll, "error": error, "ece": ece, "brier": brier}
    return {name: score(log_probs, labels) for name, score in scores.items()}

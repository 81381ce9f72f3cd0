"""Figures of smaller ensembles than were trained, and larger ensembles from several that were."""

from collections.abc import Sequence
from dataclasses import replace

from ensgap import metrics
from ensgap.gap import Array
from ensgap.predictions import Predictions


def sub_figures(predictions: Predictions, sizes: Sequence[int]) -> dict[tuple[int, str], Array]:
    """NLL and error [ensembles] of sub-ensembles of these sizes."""
    found = {}
    for size, log_probs in metrics.sub_ensembles(predictions.logits.double().log_softmax(-1)):
        if size in sizes:
            labels = predictions.labels.unsqueeze(1).expand(log_probs.shape[:-1])
            found[size, "nll"] = metrics.nll(log_probs, labels).mean(1).numpy()
            found[size, "error"] = metrics.error(log_probs, labels).mean(1).numpy()
    return found


def pool(predictions: Predictions, group: int) -> Predictions:
    """Every so many of the ensembles as one."""
    logits, held = predictions.logits, predictions.held
    if not (predictions.index == predictions.index[0]).all():
        raise ValueError("ensembles can be pooled only where all of them predict the same points")
    return replace(
        predictions,
        logits=logits.reshape(len(logits) // group, -1, *logits.shape[2:]),
        held=held.reshape(len(held) // group, -1, held.shape[-1]),
        labels=predictions.labels[::group],
        index=predictions.index[::group],
    )

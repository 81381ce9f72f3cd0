"""How the best weight decay moves as the ensemble grows, and how sure that is."""

from dataclasses import dataclass

import numpy as np

from ensgap.gap import RESAMPLES
from ensgap.results.optima import StudyResults


@dataclass(frozen=True)
class Shift:
    """The optimum by ensemble size, and the shares of resamples of the replicates that choose less, the same and more
    weight decay for the whole ensemble than for the average member.
    """

    best: tuple[float, ...]  # weight decay, for sizes 1 … M
    less: float
    same: float
    more: float
    replicates: int


def shift_of(results: StudyResults) -> Shift:
    """From the validation predictions of the search."""
    usable = [trial for trial in results.trials if trial.usable]
    decays = np.array([trial.weight_decay for trial in usable])
    losses = np.stack([trial.curves[results.objective] for trial in usable])  # [settings, sizes, replicates]
    replicates = losses.shape[-1]
    draws = np.random.default_rng(0).integers(replicates, size=(RESAMPLES, replicates))
    ind, ens = (decays[losses[:, size][:, draws].mean(-1).argmin(0)] for size in (0, -1))  # [resamples]
    less, same, more = (float(np.mean(found)) for found in (ens < ind, ens == ind, ens > ind))
    return Shift(tuple(decays[losses.mean(-1).argmin(0)].tolist()), less, same, more, replicates)

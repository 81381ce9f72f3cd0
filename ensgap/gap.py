"""From figures to answers: h*_ind, h*_ens, the optimality gap, and how sure each of them is."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from ensgap.errors import UserError

Array = NDArray[np.float64]
RESAMPLES = 2000


@dataclass(frozen=True)
class Estimate:
    """A mean over replicates with its standard error and 95% interval (Student's t); NaN where one replicate gives
    none.
    """

    mean: float
    sem: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Array) -> "Estimate":
        """From one value per replicate."""
        mean, count = float(np.mean(values)), len(values)
        if count < 2:
            return cls(mean, math.nan, math.nan, math.nan)
        sem = float(np.std(values, ddof=1)) / math.sqrt(count)
        reach = float(stdtrit(count - 1, 0.975)) * sem
        return cls(mean, sem, mean - reach, mean + reach)

    def __str__(self) -> str:
        if math.isnan(self.sem):
            return f"{self.mean:+.4f} (one replicate)"
        return f"{self.mean:+.4f} ± {self.sem:.4f} (95% interval {self.low:+.4f} to {self.high:+.4f})"

    def _repr_html_(self) -> str:
        return f"<b>{self.mean:+.4f}</b>{str(self)[len(f'{self.mean:+.4f}') :]}"

    @property
    def verdict(self) -> str:
        """Whether it is above 0, below 0, exactly 0, or cannot be told from 0."""
        if self.mean == self.sem == 0:
            return "zero"
        return "positive" if self.low > 0 else "negative" if self.high < 0 else "undecided"


@dataclass(frozen=True)
class Choice:
    """A setting chosen on validation data, and how firmly."""

    trial: int  # its place in the list of trials
    share: float  # of the resamples of the validation replicates that choose it too
    votes: tuple[float, ...]  # per trial: the share of resamples that choose it


@dataclass(frozen=True)
class Selection:
    """h*_ind, h*_ens, and the share of resamples that choose both of them."""

    ind: Choice
    ens: Choice
    share_both: float


def select(avg_member: Sequence[Array], ensemble: Sequence[Array], diverged: Sequence[bool]) -> Selection:
    """h*_ind and h*_ens: the lowest mean validation loss over replicates, never of a diverged trial.

    Replicates are resampled with replacement, the same ones for all settings because they share splits and initial
    weights, to see how often the same settings would have been chosen. With one replicate the shares are NaN.
    """
    usable = [i for i, bad in enumerate(diverged) if not bad]
    if not usable:
        raise UserError("Every trial diverged, so there is nothing to select; try a lower --lr with another --out.")
    replicates = len(avg_member[usable[0]])
    draws = np.random.default_rng(0).integers(replicates, size=(RESAMPLES, replicates))

    def choose(values: Sequence[Array]) -> tuple[Choice, NDArray[np.bool_]]:
        table = np.stack([values[i] for i in usable])  # [settings, replicates]
        best = usable[int(table.mean(-1).argmin())]
        chosen = np.array(usable)[table[:, draws].mean(-1).argmin(0)]  # [resamples]
        same = chosen == best
        known = 1.0 if replicates > 1 else math.nan  # one replicate tells nothing
        votes = known * np.bincount(chosen, minlength=len(values)) / RESAMPLES
        return Choice(best, known * float(same.mean()), tuple(votes.tolist())), same

    ind, same_ind = choose(avg_member)
    ens, same_ens = choose(ensemble)
    return Selection(ind, ens, float((same_ind & same_ens).mean()) if replicates > 1 else math.nan)


def optimality_gap(at_ind: Mapping[str, Array], at_ens: Mapping[str, Array]) -> dict[str, Estimate]:
    """Test loss of the ensemble at h*_ind minus at h*_ens, for each metric, paired by seed. Positive: tuning for the
    ensemble paid off.
    """
    for metric, values in at_ind.items():
        if len(values) != len(at_ens[metric]):
            raise ValueError(f"paired by seed, however: {len(values)} and {len(at_ens[metric])} replicates")
    return {metric: Estimate.of(at_ind[metric] - at_ens[metric]) for metric in at_ind}


def ratio_of_means(above: Array, below: Array) -> Estimate:
    """The ratio of two means over the same replicates, with its jackknife error."""
    ratio, count = float(above.mean() / below.mean()), len(above)
    if count < 2:
        return Estimate(ratio, math.nan, math.nan, math.nan)
    without = (above.sum() - above) / (below.sum() - below)  # each replicate left out in turn
    sem = float(np.sqrt((count - 1) / count * np.square(without - without.mean()).sum()))
    reach = float(stdtrit(count - 1, 0.975)) * sem
    return Estimate(ratio, sem, ratio - reach, ratio + reach)


def not_worse_than_best(estimates: Sequence[Estimate], highest: bool = False) -> list[bool]:
    """Bold in a table: the mean is within 1.96 SEM (the best one's) of the best (lowest) one, as in the paper."""
    best = (max if highest else min)(estimates, key=lambda e: e.mean)
    reach = 0.0 if math.isnan(best.sem) else 1.96 * best.sem
    return [abs(e.mean - best.mean) <= reach for e in estimates]

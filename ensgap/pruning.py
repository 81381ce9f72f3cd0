"""When to stop a trial early: when it is clearly beaten on both objectives, and only then.

Neither Tune's ASHA nor Optuna's pruners do this with two objectives: they would stop a trial that could become the
other optimum. The rule here compares a trial with those that were trained to the end, replicate by replicate, on a
logarithmic scale. For each objective it must stay above the best of them even if, in the epochs that it has left, it
improved by the largest factor by which any of them did; the 95% interval over replicates and a margin of 5% must say
so. And one of them must have been as bad at the same epoch: what the worst one so far may still gain, nobody has seen.
(A cosine schedule lets bad trials catch up late: with much weight decay an NLL of 1.85 at 40% of the epochs became
0.28. So most is saved near the end, and little is saved where all settings are good.)

`python -m ensgap.replay FOLDER…` shows on full runs what it would have stopped.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ensgap.gap import Array, Estimate

MARGIN = math.log(1.05)
LEAST_FINISHED = 3
"""Trials that must have been trained to the end before any is stopped."""


@dataclass(frozen=True)
class Curve:
    """A trial's validation figures while it trained."""

    epochs: tuple[int, ...]
    values: Mapping[str, Array]  # objective -> [epochs, replicates]

    @classmethod
    def of(cls, recorded: Mapping[str, Any]) -> "Curve":
        """From a trial's record: `epoch`, and under every objective's name a row of replicates for each of them."""
        values = {name: np.asarray(rows, dtype=np.float64) for name, rows in recorded.items() if name != "epoch"}
        return cls(tuple(recorded["epoch"]), values)

    def of_objectives(self, names: tuple[str, ...]) -> "Curve":
        """Only these."""
        return Curve(self.epochs, {name: self.values[name] for name in names})

    def until(self, epoch: int) -> "Curve":
        """What was known after that epoch."""
        count = sum(e <= epoch for e in self.epochs)
        return Curve(self.epochs[:count], {name: rows[:count] for name, rows in self.values.items()})


def is_beaten(trial: Curve, finished: Sequence[Curve]) -> bool:
    """Whether a trial has no hope of either optimum, given the whole curves of those that were trained to the end."""
    if not trial.epochs:
        return False
    epoch, width = trial.epochs[-1], next(iter(trial.values.values())).shape[1]
    rivals = [
        curve
        for curve in finished
        if epoch in curve.epochs and all(rows.shape[1] == width for rows in curve.values.values())
    ]
    if len(rivals) < LEAST_FINISHED:
        return False
    return all(_is_beaten_on(rows[-1], _ends(rivals, name, epoch)) for name, rows in trial.values.items())


def _ends(rivals: Sequence[Curve], name: str, epoch: int) -> tuple[Array, Array]:  # -> two of [rivals, replicates]
    """What each rival had at the epoch, and at its end."""
    then = [curve.values[name][curve.epochs.index(epoch)] for curve in rivals]
    return np.stack(then), np.stack([curve.values[name][-1] for curve in rivals])


def _is_beaten_on(now: Array, rivals: tuple[Array, Array]) -> bool:  # [replicates], two of [rivals, replicates]
    if min(now.min(), *(values.min() for values in rivals)) <= 0:  # a factor means nothing here, as of densities' NLL
        return False
    now, then, end = np.log(now), np.log(rivals[0]), np.log(rivals[1])
    if now.mean() > then.mean(1).max():  # worse than all: nobody knows what it may still gain
        return False
    gain = max(0.0, *(then - end).mean(1))
    best = end[end.mean(1).argmin()]
    return Estimate.of(now - gain - MARGIN - best).low > 0  # NaN, and so False, of a single replicate

"""When to stop a trial early: when it is clearly beaten on both objectives, and only then.

Neither Tune's ASHA nor Optuna's pruners do this with two objectives: they would stop a trial that could become the
other optimum. The rule here compares a trial with those that were trained to the end, replicate by replicate. With the
epochs that it has left it must need, for each objective, more than `TIMES` the improvement that any of them made in the
same epochs, to reach the best of them; the 95% interval over replicates must say so. And one of them must have been as
bad at the same epoch: what the worst one so far may still gain, nobody has seen.

`python -m ensgap.pruning FOLDER…` replays the rule on full runs.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ensgap.gap import Array, Estimate

TIMES = 2.0
"""How much more than any finished trial a trial may improve before it counts as beaten."""
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
    then, end = rivals
    if now.mean() > then.mean(1).max():  # worse than all: nobody knows what it may still gain
        return False
    gain = max(0.0, *(then - end).mean(1))
    best = end[end.mean(1).argmin()]
    return Estimate.of(now - TIMES * gain - best).low > 0  # NaN, and so False, of a single replicate


def replay(curves: Sequence[Curve], order: Sequence[int], workers: int) -> dict[int, int]:
    """The trials that the rule would have stopped, and after which epoch, had they been started in this order on so
    many workers, every epoch taking equally long.
    """
    stopped: dict[int, int] = {}
    finished: list[Curve] = []
    waiting = iter(order)
    running: list[tuple[int, int, int]] = [(0, trial, -1) for trial, _ in zip(waiting, range(workers), strict=False)]
    heapq.heapify(running)  # (time, trial, place of the last report)
    while running:
        time, trial, place = heapq.heappop(running)
        curve = curves[trial]
        if place == len(curve.epochs) - 1:
            finished.append(curve)
        elif place >= 0 and is_beaten(curve.until(curve.epochs[place]), finished):
            stopped[trial] = curve.epochs[place]
        else:
            before = curve.epochs[place] if place >= 0 else 0
            heapq.heappush(running, (time + curve.epochs[place + 1] - before, trial, place + 1))
            continue
        for following in waiting:
            heapq.heappush(running, (time, following, -1))
            break
    return stopped


def optima(curves: Sequence[Curve], usable: Sequence[int]) -> dict[str, int]:
    """The trial with the lowest mean at the end, for each objective."""
    ends = {name: [curves[i].values[name][-1].mean() for i in usable] for name in curves[0].values}
    return {name: usable[int(np.argmin(values))] for name, values in ends.items()}


@dataclass(frozen=True)
class Replay:
    """One order of trials on a number of workers: what the rule would have done."""

    workers: int
    stopped: Mapping[int, int]
    saved: float  # share of all epochs
    changed: tuple[str, ...]  # the objectives whose optimum would have been stopped


def replays(curves: Sequence[Curve], orders: int, workers: Sequence[int] = (1, 2, 8)) -> Iterator[Replay]:
    """The rule on full runs: in the order they have, and in shuffled ones."""
    rng, trials = np.random.default_rng(0), range(len(curves))
    total = sum(curve.epochs[-1] for curve in curves)
    true = optima(curves, trials)
    for i in range(orders):
        order = list(trials) if i == 0 else rng.permutation(len(curves)).tolist()
        for count in workers:
            stopped = replay(curves, order, count)
            saved = sum(curves[trial].epochs[-1] - epoch for trial, epoch in stopped.items()) / total
            yield Replay(count, stopped, saved, tuple(name for name, trial in true.items() if trial in stopped))

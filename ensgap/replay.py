"""`python -m ensgap.replay FOLDER…`: what --prune would have done to searches that were trained in full.

The trials are replayed in the order that the folder has them and in shuffled ones, on several numbers of workers; it
prints the share of epochs that would have been saved, how often either optimum would have been stopped, and by how much
the best of the stopped trials would have missed an optimum.
"""

import argparse
import heapq
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ensgap.errors import UserError
from ensgap.folder import StudyFolder
from ensgap.hyperparameters import order_of
from ensgap.losses import objective_names
from ensgap.pruning import Curve, is_beaten

WORKERS = (1, 2, 8)


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
    lost: tuple[str, ...]  # the objectives whose optimum would have been stopped
    nearest: float  # how far above an optimum, as a share, the best of the stopped trials would have ended


def replays(curves: Sequence[Curve], orders: int, workers: Sequence[int] = WORKERS) -> Iterator[Replay]:
    """The rule on full runs: in the order they have, and in shuffled ones."""
    rng, trials = np.random.default_rng(0), range(len(curves))
    total = sum(curve.epochs[-1] for curve in curves)
    true = optima(curves, trials)
    for i in range(orders):
        order = list(trials) if i == 0 else rng.permutation(len(curves)).tolist()
        for count in workers:
            stopped = replay(curves, order, count)
            saved = sum(curves[trial].epochs[-1] - epoch for trial, epoch in stopped.items()) / total
            above = [_above(curves[trial], curves[best], name) for trial in stopped for name, best in true.items()]
            lost = tuple(name for name, trial in true.items() if trial in stopped)
            yield Replay(count, stopped, saved, lost, min(above, default=math.inf))


def _above(trial: Curve, best: Curve, name: str) -> float:
    return float(trial.values[name][-1].mean() / best.values[name][-1].mean()) - 1


def read_curves(folder: StudyFolder) -> list[Curve]:
    """The curves of the search's trials; they must all have been trained in full."""
    records = [record for record, _ in folder.ended_trials("search")]
    if any(record.status == "pruned" for record in records):
        raise UserError(f"Trials in {folder.path} were pruned already; replay a study that ran without --prune.")
    found: dict[object, list[Curve]] = {}  # by setting, whose replicates may be trials of their own
    for record in records:
        if record.status == "finished" and record.details:
            found.setdefault(order_of(record.setting), []).append(Curve.of(record.details["curves"]))
    if not found:
        raise UserError(f"No trial in {folder.path} has a validation curve; run a search there.")
    objective = folder.read_study()["config"].get("objective", "nll")
    return [_joined(curves).of_objectives(objective_names(objective)) for curves in found.values()]


def _joined(curves: Sequence[Curve]) -> Curve:
    names, epochs = curves[0].values, curves[0].epochs
    return Curve(epochs, {name: np.concatenate([c.values[name] for c in curves], axis=1) for name in names})


def main(arguments: Sequence[str] | None = None) -> None:
    """Replay and print, folder by folder."""
    parser = argparse.ArgumentParser(prog="python -m ensgap.replay", description="What --prune would have done.")
    parser.add_argument("folders", type=Path, nargs="+", help="folders of finished searches")
    parser.add_argument("--orders", type=int, default=50, help="orders of trials to replay (default: 50)")
    options = parser.parse_args(arguments)
    print(f"{'study':32} {'trials':>6} {'workers':>7} {'epochs saved':>22} {'optimum lost':>12} {'nearest miss':>12}")
    try:
        for folder in options.folders:
            curves = read_curves(StudyFolder.of(folder))
            found = list(replays(curves, options.orders))
            for workers in WORKERS:
                some = [replay for replay in found if replay.workers == workers]
                saved = [replay.saved for replay in some]
                lost = f"{sum(bool(replay.lost) for replay in some)} of {len(some)}"
                nearest = min(replay.nearest for replay in some)
                share = f"{np.mean(saved):.0%} ({min(saved):.0%} to {max(saved):.0%})"
                print(f"{folder.name:32} {len(curves):6} {workers:7} {share:>22} {lost:>12} {nearest:>+12.0%}")
    except UserError as error:
        print(f"ensgap.replay: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

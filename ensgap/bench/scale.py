"""`python -m ensgap.bench.scale`: what a trial costs beside its training, and what a thousand of them cost the driver.

Trials of almost no work (two tiny members, 40 points, one epoch) go the way of all trials: Optuna, Tune, a worker, the
study's folder. The time on the clock depends on how many workers there are; the driver's own CPU seconds do not, and
they are what many workers wait for in the end.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from ensgap.folder import StudyFolder
from ensgap.holdout import Holdout
from ensgap.search.optuna_search import FixedPointsFirst, two_objective_search
from ensgap.search.optuna_storage import open_storage
from ensgap.search.session import LocalRay
from ensgap.search.tuner import Runner
from ensgap.spec import TrialSpec
from ensgap.tasks import get_task
from ensgap.train import TrainConfig

COUNTS = (10, 100, 1000)


@dataclass(frozen=True)
class Cost:
    """What so many trials took."""

    trials: int
    epochs: int  # of a trial, and so its reports
    seconds: float  # on the clock, after Ray has started
    trained: float  # seconds inside the trials, all together
    driver: float  # CPU seconds of the driver
    searcher: float  # seconds on the clock in Optuna, suggesting settings and being told, its files' writes among them
    memory: int  # bytes of the driver at its largest
    files: int
    kilobytes: float  # of a trial's folder

    def row(self) -> str:
        """For people."""
        each = 1000 / self.trials
        return (
            f"{self.trials:6} {self.epochs:7} {self.seconds * each:12.0f} {self.trained * each:12.0f} "
            f"{self.driver * each:12.1f} {self.searcher * each:12.1f} {self.memory / 2**20:12.0f} {self.kilobytes:9.1f}"
        )


HEADER = (
    f"{'trials':>6} {'reports':>7} {'clock ms':>12} {'trained ms':>12} {'driver ms':>12} {'Optuna ms':>12} "
    f"{'driver MiB':>12} {'kB/trial':>9}   (per trial; memory at the end)"
)


def measure(trials: int, epochs: int, out: Path) -> Cost:
    """Run so many trials of almost no work, in this process as the driver."""
    task = get_task("digits")
    pool = task.load(None).pool.subset(torch.arange(40))
    spec = TrialSpec("digits", "search", {"weight_decay": 0.0}, 2, (0,), 0, TrainConfig(epochs=epochs), Holdout(2, 0.5))
    folder = StudyFolder(out)
    folder.write_study({"config": {"study": "scale"}})  # which workers look for
    clock = _Clock()
    searcher = two_objective_search(open_storage(out / "optuna.journal"), "scale", _space, 0, [])
    for name in ("suggest", "on_trial_complete"):
        setattr(searcher, name, clock.around(getattr(searcher, name)))
    with LocalRay() as session:
        session.start()
        started, cpu = time.perf_counter(), time.process_time()
        Runner(folder, task, pool, session).run_search(spec, FixedPointsFirst([], searcher), trials)
        seconds, driver = time.perf_counter() - started, time.process_time() - cpu
    records = [record for record, _ in folder.ended_trials("search")]
    assert len(records) == trials
    files = [file for file in (out / "trials").rglob("*") if file.is_file()]
    return Cost(
        trials=trials,
        epochs=epochs,
        seconds=seconds,
        trained=sum(record.seconds for record in records),
        driver=driver,
        searcher=clock.seconds,
        memory=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        files=len(files),
        kilobytes=sum(file.stat().st_size for file in files) / 1000 / trials,
    )


def _space(trial: Any) -> dict[str, float]:
    return {"weight_decay": trial.suggest_float("weight_decay", 1e-6, 1.0, log=True)}


class _Clock:
    """Adds up the seconds inside functions."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                self.seconds += time.perf_counter() - started

        return timed


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every count in a process of its own, so that each has a driver's memory of its own."""
    parser = argparse.ArgumentParser(prog="python -m ensgap.bench.scale", description="The cost of many trials.")
    parser.add_argument("--trials", type=int, nargs="+", default=COUNTS, help="how many (default: 10 100 1000)")
    parser.add_argument("--epochs", type=int, default=1, help="epochs, and so reports, of a trial (default: 1)")
    parser.add_argument("--inner", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.inner is not None:
        print(json.dumps(asdict(measure(options.trials[0], options.epochs, options.inner))))
        return
    print(HEADER, flush=True)
    for count in options.trials:
        with tempfile.TemporaryDirectory(prefix="ensgap-scale-") as folder:
            command = [sys.executable, "-m", "ensgap.bench.scale", "--trials", str(count), "--inner", f"{folder}/study"]
            done = subprocess.run([*command, "--epochs", str(options.epochs)], capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"{count} trials failed:\n{done.stderr}")
            print(Cost(**json.loads(done.stdout.splitlines()[-1])).row(), flush=True)


if __name__ == "__main__":
    main()

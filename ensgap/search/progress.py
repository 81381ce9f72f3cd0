"""What a person sees of a running search: a live bar on a terminal, a line per ended trial elsewhere."""

import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from ray import tune
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ensgap.losses import objective_names
from ensgap.search.failures import reason_of
from ensgap.spec import describe_point


class SearchProgress(tune.Callback):
    """Counts epochs of all trials (whole trials, where nobody knows when they stop), and shows the best so far."""

    def __init__(self, phase: str, trials: int, epochs: int | None, objective: str = "nll") -> None:
        self.metric = objective if objective == "error" else objective.upper()
        self.names = dict(zip(objective_names(objective), ("avg member", "ensemble"), strict=True))
        self.phase, self.trials, self.epochs = phase, trials, epochs or 1
        self.counts_epochs = epochs is not None
        self.ended = 0
        self.epoch_of: dict[str, int] = {}
        self.best: dict[str, tuple[float, str]] = {}
        self.live = sys.stderr.isatty()
        self._draw()

    def _draw(self) -> None:
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("epochs" if self.counts_epochs else "trials"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[best]}"),
            console=Console(stderr=True),
            transient=True,
            disable=not self.live,
        )
        self.row = self.bar.add_task(self.phase, total=self.trials * self.epochs, best="")

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles its callbacks; a bar on a screen cannot be."""
        return {name: value for name, value in self.__dict__.items() if name != "bar"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """On the head, to which a client sends it, it prints a line per trial."""
        self.__dict__ |= state | {"live": False}
        self._draw()

    def __enter__(self) -> "SearchProgress":
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """Move the bar; when the trial is done, count it."""
        if "note" in result:
            self._say(result["note"])
        done = bool(result["done"])
        self.epoch_of[trial.trial_id] = self.epochs if done else int(result["epoch"]) * self.counts_epochs
        if done and "trouble" not in result:
            self.ended += 1
            self._note(_setting_of(trial), result)
        self.bar.update(self.row, completed=sum(self.epoch_of.values()), best=self._best_so_far())

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Say that a trial is tried again, and why."""
        self._say(f"{_setting_of(trial)} is tried again: {reason_of(Path(trial.error_file).read_text())}")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Say that a trial failed for good, and why."""
        self._say(f"{_setting_of(trial)} failed: {reason_of(Path(trial.error_file).read_text())}")

    def _say(self, text: str) -> None:
        self.bar.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _note(self, setting: str, result: dict[str, Any]) -> None:
        outcome = next((name for name in ("diverged", "pruned") if result[name]), "")
        if not outcome and self.phase != "test":
            found = {name: result[name] for name in self.names if name in result}
            outcome = ", ".join(f"{self.names[name]} {self.metric} {value:.4f}" for name, value in found.items())
            if self.phase == "search":
                for name, value in found.items():
                    self.best[name] = min(self.best.get(name, (float("inf"), "")), (value, setting))
            if not self.counts_epochs:
                outcome += f" after {result['epoch']} epochs"
        if not self.live:
            line = f"{self.phase} {self.ended}/{self.trials}  {setting}  {outcome}"
            print(line.rstrip(), file=sys.stderr, flush=True)

    def _best_so_far(self) -> str:
        return "  ".join(f"best {self.names[n]} {value:.4f} at {setting}" for n, (value, setting) in self.best.items())


def _setting_of(trial: Any) -> str:
    return describe_point(trial.config.get("point", trial.config))

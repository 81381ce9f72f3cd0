"""What becomes of trials that fail: they are tried again, then recorded; and what stops a whole study."""

from dataclasses import dataclass
from typing import Any

from ray import tune

from ensgap.spec import TrialSpec


@dataclass(frozen=True)
class Failure:
    """A trial that Tune gave up."""

    spec: TrialSpec
    reason: str
    never_began: bool  # its process or its node died before the first report, where Tune does not try again


class KeepErrorText(tune.Callback):
    """Lets Tune read an error back as text only: it would unpickle it from the study's folder."""

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Forget that there is a pickled error."""
        trial.run_metadata.pickled_error_filename = None


class StopOnTrouble(tune.Stopper):
    """Stops all trials when one finds that nothing can be written any more."""

    def __init__(self) -> None:
        self.trouble = False

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Look for trouble; a trial itself knows when it is done."""
        self.trouble = self.trouble or "trouble" in result
        return False

    def stop_all(self) -> bool:
        """Whether there was trouble."""
        return self.trouble


def find_trouble(results: tune.ResultGrid) -> str | None:
    """Why the study had to stop, if it had to."""
    metrics = [results[i].metrics or {} for i in range(len(results))]
    return next((found["trouble"] for found in metrics if "trouble" in found), None)


def find_failures(results: tune.ResultGrid, base: TrialSpec) -> list[Failure]:
    """The trials that Tune gave up."""
    found = []
    for i, trial in enumerate(results._experiment_analysis.trials):  # a result has no config if no worker started
        result, config = results[i], trial.config
        if result.error is not None:
            spec = base.at_point(config.get("point", config))
            text = str(result.error)
            died = "actor died" in text or "actor is dead" in text
            found.append(Failure(spec, reason_of(text), died and "epoch" not in (result.metrics or {})))
    return found


def reason_of(text: str) -> str:
    """The reason in one line, from all that Tune wrote about a trial's failures."""
    last = text.rpartition("Failure # ")[2]
    if "low on memory" in last:  # Ray's own monitor says so; of the kernel's, nothing is known but the death
        return "its node ran out of memory"
    if "creation task" not in last and ("actor died" in last or "actor is dead" in last):
        return "its worker died, or its node was lost"
    lines = [line.strip() for line in last.splitlines() if line.strip()]
    return lines[-1] if lines else "unknown"

"""The Tune trial: a thin Trainable around TrialRun, in an actor that is used again for the next trial."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from ray import tune

from ensgap.folder import StudyFolder
from ensgap.losses import hopeless
from ensgap.points import Points
from ensgap.search.run import TrialRun
from ensgap.search.stopping_run import StoppingRun
from ensgap.spec import TrialSpec
from ensgap.stack import Kernels
from ensgap.tasks import Task

REPORTS = 10
"""How many times a trial reports while it trains."""


@dataclass(frozen=True)
class Machine:
    """What a trial computes on."""

    threads: int
    gpu: bool
    kernels: Kernels


class Trial(tune.Trainable):
    """Trains one setting's stack; a trial that is already in the study's folder reports what it found."""

    def setup(
        self,
        config: dict[str, Any],
        base: TrialSpec | None = None,
        task: Task | None = None,
        pool: Points | None = None,
        test: Points | None = None,
        folder: StudyFolder | None = None,
        machine: Machine | None = None,
    ) -> None:
        """Take what all trials share; Tune fills the arguments in through the object store."""
        assert base is not None and task is not None and pool is not None and folder is not None and machine is not None
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        torch.set_num_threads(machine.threads)
        self.machine = machine
        self.base, self.task, self.pool, self.test, self.folder = base, task, pool, test, folder
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Begin the next trial in this process."""
        spec = self.base.at_point(new_config.get("point", new_config))
        self.running = self._reports(spec)
        return True

    def _reports(self, spec: TrialSpec) -> Iterator[dict[str, float]]:
        record = self.folder.find(spec)
        if record is None:
            device = torch.device("cuda" if self.machine.gpu else "cpu")
            kind = TrialRun if spec.stopping is None else StoppingRun
            run = kind(spec, self.task, self.pool, self.test, self.folder, device, self.machine.kernels)
            yield from run.reports(every=max(1, spec.training.epochs // REPORTS))
        else:
            figures = hopeless(self.task.loss) | record.validation
            yield figures | {"epoch": record.epochs, "diverged": record.status == "diverged", "done": True}

    def step(self) -> dict[str, float]:
        """Train on to the next report."""
        return next(self.running)

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing: the study's folder has the trial's own checkpoint, which outlives Ray's bookkeeping."""

    def load_checkpoint(self, checkpoint: dict[str, Any] | None) -> None:
        """Nothing, likewise."""

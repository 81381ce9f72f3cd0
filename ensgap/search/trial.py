"""The Tune trial: a thin Trainable around TrialRun, in an actor that is used again for the next trial."""

import math
import socket
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from ray import tune

from ensgap.folder import CheckpointWarning, StudyFolder
from ensgap.losses import hopeless, objective_names
from ensgap.points import Points
from ensgap.search.gauges import Gauges
from ensgap.search.nodes import difference
from ensgap.search.rivals import Rivals
from ensgap.search.run import TrialRun
from ensgap.search.stopping_run import StoppingRun
from ensgap.spec import TrialSpec
from ensgap.stack import Kernels
from ensgap.stack.products import set_threads
from ensgap.storage import describe_trouble, is_lasting
from ensgap.tasks import Task
from ensgap.versions import versions

REPORTS = 10
"""How many times a trial reports while it trains."""


@dataclass(frozen=True)
class Machine:
    """What a trial computes on."""

    threads: int
    gpu: bool
    kernels: Kernels
    checkpoint_every: int | None
    versions: Mapping[str, str]  # of the driver


class Trial(tune.Trainable):
    """Trains one setting's stack; a trial that is already in the study's folder reports what it found."""

    worker = "ensgap"  # its name, before it knows its study

    def setup(
        self,
        config: dict[str, Any],
        base: TrialSpec | None = None,
        task: Task | None = None,
        pool: Points | None = None,
        test: Points | None = None,
        folder: StudyFolder | None = None,
        machine: Machine | None = None,
        prune: str | None = None,
    ) -> None:
        """Take what all trials share; Tune fills the arguments in through the object store."""
        assert base is not None and task is not None and pool is not None and folder is not None and machine is not None
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        set_threads(machine.threads)
        self.machine, self.worker = machine, f"{folder.path.name}/{base.phase}"
        _check_node(folder, machine)
        self.base, self.task, self.pool, self.test, self.folder = base, task, pool, test, folder
        self.rivals = None if prune is None else Rivals(folder, objective_names(prune))
        self.gauges = Gauges(folder.path.name, task.name, base.phase)
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Begin the next trial in this process."""
        spec = self.base.at_point(new_config.get("point", new_config))
        self.name, self.running = spec.key, self._reports(spec)
        return True

    def __repr__(self) -> str:
        """How Ray's dashboard and process lists call this worker, for all the trials it runs."""
        return self.worker

    def _reports(self, spec: TrialSpec) -> Iterator[dict[str, Any]]:
        record = self.folder.find(spec)
        if record is None:
            try:
                yield from self._train(spec)
            except OSError as error:
                if not is_lasting(error):
                    raise
                # NaN, which Optuna leaves alone, so that a resumed study suggests the setting again.
                nothing = dict.fromkeys(hopeless(self.task.loss), math.nan) | {
                    "epoch": 0,
                    "diverged": False,
                    "pruned": False,
                    "done": True,
                }
                yield nothing | {"trouble": describe_trouble(self.folder.path, error)}
        else:
            figures = hopeless(self.task.loss) | record.validation
            ended = {"diverged": record.status == "diverged", "pruned": record.status == "pruned", "done": True}
            yield figures | {"epoch": record.epochs} | ended

    def _train(self, spec: TrialSpec) -> Iterator[dict[str, Any]]:
        """Train it from the start or from its checkpoint; a warning of that goes with the first report."""
        machine, device = self.machine, torch.device("cuda" if self.machine.gpu else "cpu")
        kind = TrialRun if spec.stopping is None else StoppingRun
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", CheckpointWarning)
            how = (device, machine.kernels, machine.checkpoint_every)
            run = kind(spec, self.task, self.pool, self.test, self.folder, *how)
        if self.rivals is not None:
            run.prune = partial(self.rivals.beat, spec, spec.training.epochs)
        notes = [str(item.message) for item in caught if item.category is CheckpointWarning]
        for report in run.reports(every=max(1, spec.training.epochs // REPORTS)):
            yield report | ({"note": " ".join(notes)} if notes else {})
            notes = []

    def step(self) -> dict[str, Any]:
        """Train on to the next report."""
        report = next(self.running)
        self.gauges.show(self.name, report)
        return report

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing: the study's folder has the trial's own checkpoint, which outlives Ray's bookkeeping."""

    def load_checkpoint(self, checkpoint: dict[str, Any] | None) -> None:
        """Nothing, likewise."""


def _check_node(folder: StudyFolder, machine: Machine) -> None:
    """Refuse to train on a node that joined later and has other versions, or does not see the study's folder."""
    other = difference(versions(), machine.versions)
    if other is None and not folder.exists():
        other = f"no study.json at {folder.path}, which all nodes must see"
    if other:
        raise RuntimeError(f"The node {socket.gethostname()} has {other}.")

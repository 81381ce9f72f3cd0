"""One trial's work without Ray: build the stack, train it on, evaluate it, keep what it predicts."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ensgap import metrics
from ensgap.folder import Status, StudyFolder, TrialRecord, warn_of_checkpoint
from ensgap.holdout import replicate_holdouts
from ensgap.hyperparameters import member_vectors
from ensgap.losses import hopeless
from ensgap.points import Points
from ensgap.predictions import Predictions
from ensgap.pruning import Curve
from ensgap.seeds import INIT, ORDER, member_generators
from ensgap.spec import TrialSpec
from ensgap.stack import Kernels, OptimizerConfig, Stack
from ensgap.tasks import Task
from ensgap.train import Epoch, Training

CHECKPOINT_SECONDS = 20.0
"""A checkpoint is written when the last one is this old, and 20 times as old as it took to write."""
NOTE_SECONDS = 2.0
"""How often a running trial says how far it is."""


@dataclass
class TrialRun:
    """A trial on its way; a search gets no `test`, so that it cannot see it."""

    spec: TrialSpec
    task: Task
    pool: Points
    test: Points | None
    folder: StudyFolder
    device: torch.device = torch.device("cpu")
    kernels: Kernels = "auto"
    checkpoint_every: int | None = None  # epochs, beside the clock
    prune: Callable[[Curve], bool] | None = None  # says whether it is beaten, from its curve so far
    seconds: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self.begin()
        saved = self.folder.load_checkpoint(self.spec)
        try:
            if saved is not None and saved["stack"] == type(self.training.stack).__name__:
                self.load_state_dict(saved)
        except Exception as error:
            warn_of_checkpoint(self.folder.trial_path(self.spec), error)
            self.begin()

    def begin(self) -> None:
        """Be at the start of the training."""
        spec = self.spec
        self.task = self.task.at(spec.setting)
        self.curves: dict[str, list[Any]] = {}  # "epoch", and by objective a row of replicates for each
        self.noted = 0.0
        if spec.holdout is None:
            self.held = torch.zeros(len(spec.replicates), spec.members, len(self.pool), dtype=torch.bool)
        else:
            self.held = replicate_holdouts(self.pool.labels, spec.seed, spec.replicates, spec.members, spec.holdout)
        train_index = _places(~self.held.flatten(0, 1))
        pool = self.pool.to(self.device)
        self.training = Training(
            self._stack(),
            pool,
            train_index,
            spec.training,
            member_generators(spec.seed, spec.replicates, spec.members, ORDER),
            self.task.prepare(pool, train_index),
        )

    def _stack(self) -> Stack:
        spec, stack = self.spec, len(self.spec.replicates) * self.spec.members
        optimizer = OptimizerConfig(
            spec.training.optimizer,
            momentum=spec.training.momentum,
            **member_vectors(spec.train, spec.setting, stack),
        )
        if spec.fast_weights is not None:
            who = (spec.seed, spec.replicates, spec.members, spec.fast_weights)
            return self.task.batch_ensemble_stack(*who, optimizer, self.device, spec.precision, self.kernels)
        generators = member_generators(spec.seed, spec.replicates, spec.members, INIT)
        return self.task.stack(generators, optimizer, self.device, self.kernels, spec.precision, self.pool)

    def reports(self, every: int) -> Iterator[dict[str, float]]:
        """Train to the end, yielding the figures of every so many epochs; the last item has `done`, and what it
        describes is in the folder by then.
        """
        clock = self.checkpoint_due = time.perf_counter()
        self.checkpoint_due += CHECKPOINT_SECONDS
        self._note({"epoch": self.training.epoch})
        for epoch in self.training.epochs():
            last = epoch.diverged or self.is_last(epoch)
            if not (last or self.wants_to_see(epoch, every)):
                now = time.perf_counter()
                self.seconds, clock = self.seconds + now - clock, now
                self._keep_state(epoch.epoch)
                self._note({"epoch": epoch.epoch})
                continue
            figures = {} if epoch.diverged else self.evaluate(last)
            diverged = epoch.diverged or not all(math.isfinite(value) for value in figures.values())
            if diverged:
                figures = hopeless(self.task.loss)
            pruned = not diverged and not last and self.is_beaten()
            done = diverged or pruned or last or self.has_stopped()
            now = time.perf_counter()
            self.seconds, clock = self.seconds + now - clock, now
            if done:
                self._finish("diverged" if diverged else "pruned" if pruned else "finished", figures, epoch.epoch)
            else:
                self._keep_state(epoch.epoch)
                self._note(
                    {"epoch": epoch.epoch}
                    | {name: figures[name] for name in hopeless(self.task.loss) if name in figures}
                )
            yield figures | {
                "epoch": epoch.epoch,
                "train_nll": float(epoch.train_nll.mean()),
                "points_per_second": self.training.train_index.numel() / max(epoch.seconds, 1e-9),
                "diverged": diverged,
                "pruned": pruned,
                "done": done,
            }
            if done:
                return

    def _note(self, progress: dict[str, float]) -> None:
        """Tell those who watch from outside how far it is, not more often than they look."""
        now = time.time()
        if now - self.noted >= NOTE_SECONDS:
            self.noted = now
            with contextlib.suppress(OSError):  # a study does not depend on it
                self.folder.note_progress(self.spec, progress | {"seconds": self.seconds, "time": now})

    def is_beaten(self) -> bool:
        """Whether to stop because other trials are better on both objectives, and will be."""
        return self.prune is not None and self.prune(Curve.of(self.curves))

    def _keep_state(self, epoch: int) -> None:
        """Write a checkpoint, if one is due."""
        started = time.perf_counter()
        by_epoch = self.checkpoint_every is not None and epoch % self.checkpoint_every == 0
        if by_epoch or started >= self.checkpoint_due:
            self.folder.save_checkpoint(self.spec, self.state_dict())
            ended = time.perf_counter()
            self.checkpoint_due = ended + max(CHECKPOINT_SECONDS, 20 * (ended - started))

    def is_last(self, epoch: Epoch) -> bool:
        """Whether training ends here in any case."""
        return epoch.epoch == self.spec.training.epochs

    def wants_to_see(self, epoch: Epoch, every: int) -> bool:
        """Whether to evaluate after this epoch."""
        return epoch.epoch % every == 0

    def has_stopped(self) -> bool:
        """Whether to end before the last epoch."""
        return False

    def evaluate(self, last: bool) -> dict[str, float]:
        """The figures to report, means over replicates; in the test phase only at the end."""
        if self.spec.phase == "test":
            if not last:
                return {}
            predictions = self.predict_test()
        else:
            predictions = self.predict_holdout()
        self.last_seen = predictions
        figures = metrics.evaluate(predictions)
        if self.spec.phase != "test":
            self.curves.setdefault("epoch", []).append(self.training.epoch)
            for name in hopeless(self.task.loss):
                if name in figures:
                    self.curves.setdefault(name, []).append(figures[name].tolist())
        return {name: float(values.mean()) for name, values in figures.items()}

    def results(self) -> tuple[dict[str, Predictions], dict[str, Any]]:
        """What to keep of the whole trial: predictions by name, and details for its record."""
        details = {"curves": self.curves} if self.curves else {}
        if self.spec.phase == "holdout":
            return {"holdout": self.last_seen, "test": self.predict_test()}, details
        return {"predictions": self.last_seen}, details

    def predict_holdout(self) -> Predictions:
        """Every member at its own held-out points; where another member holds a point out, its logits are zeros."""
        index = _places(self.held.any(1))  # [ensembles, points]
        held = self.held.gather(2, index.unsqueeze(1).expand(-1, self.spec.members, -1))
        own = self.training.predict(self.training.points, _places(self.held.flatten(0, 1)))
        logits = own.new_zeros(*held.shape, own.shape[-1])
        logits[held] = own.flatten(0, 1)
        return self._predictions(logits, index, held, self.training.points)

    def predict_test(self) -> Predictions:
        """All members at the test points."""
        assert self.test is not None
        points = self.test.to(self.device)
        return self._everywhere(points, torch.ones(*self.held.shape[:2], len(points), dtype=torch.bool))

    def predict_pool(self) -> Predictions:
        """All members at all points of the pool, those they trained on and those they held out."""
        return self._everywhere(self.training.points, self.held)

    def _everywhere(self, points: Points, held: Tensor) -> Predictions:
        ensembles, members = held.shape[:2]
        index = torch.arange(len(points)).repeat(ensembles, 1)
        logits = self.training.predict(points, index.repeat_interleave(members, dim=0))
        return self._predictions(logits.unflatten(0, (ensembles, members)), index, held, points)

    def _predictions(self, logits: Tensor, index: Tensor, held: Tensor, points: Points) -> Predictions:
        return Predictions(logits, points.labels.cpu()[index], held, index, self.spec.identity())

    def _finish(self, status: Status, figures: dict[str, float], epochs: int) -> None:
        predictions, details = ({}, {"curves": self.curves}) if status != "finished" else self.results()
        validation = {} if status == "diverged" or self.spec.phase == "test" else figures
        record = TrialRecord(self.spec.identity(), status, epochs, self.seconds, validation, details=details)
        self.folder.finish(self.spec, record, predictions)

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        stack = type(self.training.stack).__name__
        state = {"training": self.training.state_dict(), "seconds": self.seconds, "stack": stack}
        return state | {"curves": self.curves}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.training.load_state_dict(state["training"])
        self.seconds = state["seconds"]
        self.curves = state.get("curves", {})  # which checkpoints of before there was --prune do not have


def _places(mask: Tensor) -> Tensor:  # bool [rows, points] -> [rows, places]
    """Where each row is true; equally often in all rows."""
    return mask.nonzero()[:, 1].view(len(mask), -1)

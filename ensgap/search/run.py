"""One trial's work without Ray: build the stack, train it on, evaluate it, keep what it predicts."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from ensgap import metrics
from ensgap.folder import Status, StudyFolder, TrialRecord
from ensgap.holdout import replicate_holdouts
from ensgap.points import Points
from ensgap.predictions import Predictions
from ensgap.seeds import INIT, ORDER, member_generators
from ensgap.spec import TrialSpec
from ensgap.stack import Kernels, OptimizerConfig
from ensgap.tasks import Task
from ensgap.train import Training

CHECKPOINT_SECONDS = 20.0
OBJECTIVES = ("avg_member_nll", "ensemble_nll")
HOPELESS = 100.0
"""Both objectives of a diverged trial, in nats: finite, because a NaN would leave Optuna's trial running for ever."""


@dataclass
class TrialRun:
    """A trial on its way; `test` is given only in the test phase, so that a search cannot see it."""

    spec: TrialSpec
    task: Task
    pool: Points
    test: Points | None
    folder: StudyFolder
    device: torch.device = torch.device("cpu")
    kernels: Kernels = "auto"
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    seconds: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        spec, stack = self.spec, len(self.spec.replicates) * self.spec.members
        if spec.holdout is None:
            self.held = torch.zeros(len(spec.replicates), spec.members, len(self.pool), dtype=torch.bool)
        else:
            self.held = replicate_holdouts(self.pool.labels, spec.seed, spec.replicates, spec.members, spec.holdout)
        train_index = torch.stack([kept.nonzero().squeeze(1) for kept in ~self.held.flatten(0, 1)])
        optimizer = OptimizerConfig(
            spec.train.optimizer,
            lr=[spec.train.lr] * stack,
            weight_decay=[spec.setting["weight_decay"]] * stack,
            momentum=spec.train.momentum,
        )
        generators = member_generators(spec.seed, spec.replicates, spec.members, INIT)
        pool = self.pool.to(self.device)
        self.training = Training(
            self.task.stack(generators, optimizer, self.device, self.kernels, spec.precision),
            pool,
            train_index,
            spec.train,
            member_generators(spec.seed, spec.replicates, spec.members, ORDER),
            self.task.prepare(pool, train_index),
        )
        saved = self.folder.load_checkpoint(spec)
        if saved is not None and saved["stack"] == type(self.training.stack).__name__:
            self.training.load_state_dict(saved["training"])
            self.seconds = saved["seconds"]

    def reports(self, every: int) -> Iterator[dict[str, float]]:
        """Train to the end, yielding the figures of every so many epochs; the last item has `done`, and what it
        describes is in the folder by then.
        """
        clock = checkpointed = time.perf_counter()
        for epoch in self.training.epochs():
            last = epoch.diverged or epoch.epoch == self.spec.train.epochs
            if not last and epoch.epoch % every:
                continue
            figures: dict[str, float] = {}
            predictions = None
            if not epoch.diverged and (last or self.spec.phase == "search"):
                predictions = self.predict()
                figures = {name: float(values.mean()) for name, values in metrics.evaluate(predictions).items()}
            diverged = epoch.diverged or not all(math.isfinite(value) for value in figures.values())
            if diverged:
                figures = dict.fromkeys(OBJECTIVES, HOPELESS)
            now = time.perf_counter()
            self.seconds, clock = self.seconds + now - clock, now
            if last or diverged:
                self._finish(None if diverged else predictions, figures, epoch.epoch)
            elif now - checkpointed >= self.checkpoint_seconds:
                state = {
                    "training": self.training.state_dict(),
                    "seconds": self.seconds,
                    "stack": type(self.training.stack).__name__,
                }
                self.folder.save_checkpoint(self.spec, state)
                checkpointed = now
            yield figures | {
                "epoch": epoch.epoch,
                "train_nll": float(epoch.train_nll.mean()),
                "diverged": diverged,
                "done": last or diverged,
            }
            if diverged:
                return

    def predict(self) -> Predictions:
        """The stack's predictions at its held-out points, or at the test points if it has some."""
        spec, ensembles = self.spec, len(self.spec.replicates)
        if self.test is None:
            points = self.training.points
            index = torch.stack([held.any(0).nonzero().squeeze(1) for held in self.held])  # [ensembles, points]
            held = self.held.gather(2, index.unsqueeze(1).expand(-1, spec.members, -1))
        else:
            points = self.test.to(self.device)
            index = torch.arange(len(points)).repeat(ensembles, 1)
            held = torch.ones(ensembles, spec.members, len(points), dtype=torch.bool)
        logits = self.training.predict(points, index.repeat_interleave(spec.members, dim=0))
        return Predictions(
            logits.unflatten(0, (ensembles, spec.members)), points.labels.cpu()[index], held, index, spec.identity()
        )

    def _finish(self, predictions: Predictions | None, figures: dict[str, float], epochs: int) -> None:
        validation = figures if self.spec.phase == "search" and predictions is not None else {}
        status: Status = "diverged" if predictions is None else "finished"
        record = TrialRecord(self.spec.identity(), status, epochs, self.seconds, validation)
        self.folder.finish(self.spec, record, predictions)

"""Temperature, early stopping, BatchEnsemble: studies of a design, validation shares × holdout orders × replicates."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from ensgap.errors import UserError
from ensgap.holdout import Holdout, describe, replicate_holdouts
from ensgap.plans.plan import scaled_down
from ensgap.spec import TrialSpec, in_trials
from ensgap.stack import FastInit, Precision
from ensgap.stopping import Stopping
from ensgap.tasks import Task
from ensgap.train import TrainConfig


@dataclass(frozen=True)
class DesignPlan:
    """Everything that decides the study's figures, and where they go."""

    study: str
    task: Task
    members: int
    replicates: int
    replicates_per_trial: int
    train: TrainConfig
    weight_decay: float
    val_fractions: tuple[float, ...]
    holdouts: tuple[int, ...]  # orders
    stopping: Stopping | None
    inits: tuple[FastInit | Literal["none"], ...]  # of fast weights; none: a deep ensemble
    seed: int
    train_fraction: float
    test_fraction: float
    precision: Precision
    smoke: bool
    out: Path

    @property
    def may_change(self) -> tuple[str, ...]:
        """What a continuation may change."""
        return ("out", "replicates", "val_fractions", "holdouts", "inits")

    @property
    def as_paper(self) -> bool:
        """Whether it repeats the paper's experiment at full size, so that its figures may be compared."""
        paper = self.task.presets.get("paper")
        if paper is None or min(self.train_fraction, self.test_fraction) < 1 or self.smoke:
            return False
        if self.stopping is None:
            same = self.members == paper.members and self.train == paper.train
            return same and self.weight_decay == self.task.design.weight_decay
        members = 4 if self.study == "batch_ensemble" else paper.members
        adam = (self.train.optimizer, self.train.lr) == ("adam", self.task.design.stopping_lr)
        return adam and self.members == members and self.stopping.patience == 10

    def feasible(self, labels: Tensor) -> tuple[list[Holdout], list[str]]:
        """The holdouts that the pool allows, and a sentence about each thing that cannot be done."""
        found, notes = [], []
        for order in self.holdouts:
            for fraction in self.val_fractions:
                holdout = Holdout(order, fraction)
                try:
                    replicate_holdouts(labels, self.seed, range(self.replicates), self.members, holdout)
                    found.append(holdout)
                except UserError as error:
                    reason = str(error).replace("--val-fraction", "--val-fractions")
                    notes.append(f"Left out: {describe(holdout, self.members)}. {reason}")
        if not found:
            raise UserError(f"No validation share and holdout of this study fits the data. {notes[0]}")
        if self.stopping is None and any(holdout.order == 1 for holdout in found):
            notes.append(
                "Disjoint holdouts have individual temperatures only: no point is held out by two members, so there is "
                "nothing to fit a joint one on."
            )
        return found, notes

    def trials(self, holdouts: Sequence[Holdout]) -> Iterator[TrialSpec]:
        """Every trial, cell by cell."""
        groups = in_trials(self.replicates, self.replicates_per_trial)
        for init in self.inits:
            for holdout in holdouts:
                if init == "none" and len(self.inits) > 1 and holdout.order != max(self.holdouts):
                    continue  # the deep ensemble stands beside BatchEnsemble as a baseline, with a shared holdout
                for group in groups:
                    yield self._trial(init, holdout, group)

    def _trial(self, init: FastInit | Literal["none"], holdout: Holdout, replicates: tuple[int, ...]) -> TrialSpec:
        stopping = self.stopping
        if stopping is not None and init != "none":  # slow weights are shared, so all members stop together
            stopping = replace(stopping, rules=("shared_epoch", "joint"))
        return TrialSpec(
            task=self.task.name,
            phase="holdout",
            setting={"weight_decay": self.weight_decay},
            members=self.members,
            replicates=replicates,
            seed=self.seed,
            train=self.train,
            holdout=holdout,
            train_fraction=self.train_fraction,
            test_fraction=self.test_fraction,
            precision=self.precision,
            stopping=stopping,
            fast_weights=None if init == "none" else init,
        )

    def to_json(self) -> dict[str, Any]:
        """For study.json: one level, under the names of the flags."""
        flat = {name: value for name, value in self.__dict__.items() if name not in ("train", "stopping")}
        lists = {name: [*getattr(self, name)] for name in ("val_fractions", "holdouts", "inits")}
        found = flat | asdict(self.train) | lists
        if self.stopping is not None:
            found |= {"patience": self.stopping.patience, "keep_weights": self.stopping.keep_weights}
        epochs = f"{'at most ' * (self.stopping is not None)}{self.train.epochs} epochs"
        smaller = scaled_down(self.task, self.train_fraction, self.test_fraction, epochs)
        found |= {} if smaller is None else {"scaled_down": smaller}
        return found | {"task": self.task.name, "out": str(self.out), "as_paper": self.as_paper}

"""The flags of the studies of a design, and the plans they make."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ensgap.config import StudyConfig, flag
from ensgap.errors import UserError
from ensgap.folder import StudyFolder
from ensgap.holdout import parse_order
from ensgap.plans.design import DesignPlan
from ensgap.results.optima import read_results
from ensgap.stack import FastInit
from ensgap.stopping import Stopping
from ensgap.tasks import Task
from ensgap.train import TrainConfig

SMOKE = {"members": 3, "replicates": 2, "epochs": 4, "val_fractions": (0.2, 0.3)}


@dataclass(frozen=True)
class DesignConfig(StudyConfig):
    """What the studies of a design have in common."""

    val_fractions: tuple[float, ...] | None = flag("shares of the pool that each member holds out")
    holdouts: tuple[str, ...] | None = flag("which points members hold out: shared, overlapping, disjoint, or orders")

    def design(self, study: str, task: Task, names: tuple[str, ...], **own: Any) -> DesignPlan:
        """The plan, with what is the study's own; `names` are its usual holdouts."""
        self.check_ranges()
        if task.loss == "regression":
            raise UserError(
                f"{task.name} is a regression, and this study is for classes; studies/weight_decay.py takes it."
            )
        smoke = SMOKE | dict.fromkeys(("train_fraction", "test_fraction"), task.smoke_fraction)
        members = self.pick("members", own.pop("members", task.defaults.members), smoke)
        orders = {parse_order(name, members) for name in self.holdouts or names}
        fractions = self.pick("val_fractions", own.pop("val_fractions", task.design.val_fractions), smoke)
        bad = [value for value in fractions if not 0 < value < 1]
        if bad:
            raise UserError(f"--val-fractions must lie between 0 and 1, however: {bad[0]:g}.")
        train: TrainConfig = own.pop("train")
        train = replace(train, epochs=self.pick("epochs", train.epochs, smoke), lr=self.pick("lr", train.lr, smoke))
        return DesignPlan(
            study=study,
            task=task,
            members=members,
            replicates=self.pick("replicates", own.pop("replicates"), smoke),
            replicates_per_trial=self.in_a_trial(task.loop_on_cpu),
            train=train,
            val_fractions=tuple(sorted(set(fractions))),
            holdouts=tuple(sorted(orders, reverse=True)),
            seed=self.seed,
            train_fraction=self.pick("train_fraction", task.design.train_fraction, smoke),
            test_fraction=self.pick("test_fraction", task.design.test_fraction, smoke),
            precision=self.precision,
            smoke=self.smoke,
            out=self.folder(study),
            **own,
        )


@dataclass(frozen=True)
class TemperatureConfig(DesignConfig):
    """Temperature scaling after training: individual, joint, or of the pooled prediction, against none."""

    weight_decay: float | None = flag("weight decay to train with (default: the task's best for the average member)")
    from_: Path | None = flag("take the weight decay, h*_ind, from the finished weight-decay study in this folder")

    def plan(self, task: Task) -> DesignPlan:
        """The study to run, everything checked."""
        task = task.with_preset(self.preset)
        return self.design(
            "temperature",
            task,
            ("shared", "overlapping"),
            train=task.defaults.train,
            replicates=task.design.temperature_replicates,
            weight_decay=self._weight_decay(task),
            stopping=None,
            inits=("none",),
        )

    def _weight_decay(self, task: Task) -> float:
        if self.weight_decay is not None and self.from_ is not None:
            raise UserError("--weight-decay and --from both say which weight decay to train with; give one of them.")
        if self.weight_decay is not None:
            if not 0 <= self.weight_decay < math.inf:
                raise UserError(f"--weight-decay must be a number from 0 up, however: {self.weight_decay:g}.")
            return self.weight_decay
        if self.from_ is None:
            return task.design.weight_decay
        folder = StudyFolder.of(self.from_)
        recorded = folder.read_study()["config"]
        if recorded["study"] != "weight_decay" or recorded["task"] != task.name:
            raise UserError(
                f"--from takes a weight-decay study of {task.name}; {self.from_} holds a {recorded['study']} study of "
                f"{recorded['task']}."
            )
        return read_results(folder).h_ind.weight_decay


@dataclass(frozen=True)
class EarlyStoppingConfig(DesignConfig):
    """Early stopping: each member at its own best epoch, all at one, or at the ensemble's best, from one training."""

    patience: int = flag("epochs without improvement after which a rule stops", 10)
    keep_weights: bool = flag(
        "keep the weights that each rule chose, as weights-<rule>.pt beside the predictions", False
    )

    def plan(self, task: Task) -> DesignPlan:
        """The study to run, everything checked."""
        return self.stopping_design("early_stopping", task.with_preset(self.preset), inits=("none",))

    def stopping_design(self, study: str, task: Task, **own: Any) -> DesignPlan:
        """A design of trials that stop early: Adam, a constant learning rate, no weight decay."""
        self.check_at_least({"patience": 1})
        usual = TrainConfig("adam", task.design.stopping_lr, schedule="constant", epochs=task.design.stopping_epochs)
        return self.design(
            study,
            task,
            ("shared", "overlapping", "disjoint"),
            train=replace(usual, batch_size=task.defaults.train.batch_size),
            replicates=task.design.stopping_replicates,
            weight_decay=0.0,
            stopping=Stopping(self.patience, self.keep_weights),
            **own,
        )


@dataclass(frozen=True)
class BatchEnsembleConfig(EarlyStoppingConfig):
    """BatchEnsemble: how its fast weights are initialised, and whether members' own holdouts can be trusted."""

    inits: tuple[FastInit, ...] = flag("initialisations of the fast weights", ("gaussian_0.1", "gaussian_0.5", "sign"))
    stopping: Literal["joint", "individual"] = flag(
        "how training stops; members share weights, so only jointly", "joint"
    )

    def plan(self, task: Task) -> DesignPlan:
        """The study to run, everything checked."""
        if self.stopping == "individual":
            raise UserError(
                "The members of a BatchEnsemble share their slow weights, so none of them can stop before the others; "
                "leave out --stopping individual."
            )
        task = task.with_preset(self.preset)
        task.batch_ensembles()
        own = {"members": 4, "val_fractions": (task.design.batch_ensemble_fraction,), "inits": ("none", *self.inits)}
        plan = self.stopping_design("batch_ensemble", task, **own)
        return replace(plan, val_fractions=plan.val_fractions[-1:]) if self.smoke and not self.val_fractions else plan

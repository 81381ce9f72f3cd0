"""Early-stopping rules, each a function of validation curves; one training run serves all of them.

A rule watches a curve, keeps the epoch of its lowest value, and stops once that is `patience` epochs past.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from ensgap import metrics
from ensgap.predictions import Predictions

Rule = Literal["individual", "shared_epoch", "joint"]
RULES: tuple[Rule, ...] = ("individual", "shared_epoch", "joint")
"""Each member at its own best epoch; all at the epoch of the best mean NLL of members; at that of the ensemble's."""


@dataclass(frozen=True)
class Stopping:
    """When training ends early."""

    patience: int = 10
    keep_weights: bool = False
    rules: tuple[Rule, ...] = RULES


@dataclass
class Progress:
    """How far a rule is, for every member [ensembles, members]."""

    best: Tensor  # the epoch (from 0) that it keeps
    lowest: Tensor
    stopped: Tensor

    @classmethod
    def start(cls, values: Tensor) -> "Progress":
        """Before the first epoch, of which these are the values."""
        shape = values.shape
        return cls(torch.zeros(shape).long(), torch.full(shape, torch.inf).to(values), torch.zeros(shape).bool())

    def look(self, epoch: int, values: Tensor, patience: int) -> Tensor:
        """Take an epoch's values; where they are better than all before.

        A tie keeps the earlier epoch, and a NaN is never better.
        """
        better = (values < self.lowest) & ~self.stopped
        self.best = torch.where(better, epoch, self.best)
        self.lowest = torch.where(better, values, self.lowest)
        self.stopped = self.stopped | (epoch - self.best >= patience)
        return better


def watched(member_nll: Tensor, joint_nll: Tensor | None) -> dict[Rule, Tensor]:
    """What each rule watches in an epoch, for every member [ensembles, members]; without a joint NLL (order 1) there is
    no joint rule.
    """
    found: dict[Rule, Tensor] = {"individual": member_nll, "shared_epoch": member_nll.mean(-1, keepdim=True)}
    if joint_nll is not None:
        found["joint"] = joint_nll.unsqueeze(-1)
    return {rule: values.expand_as(member_nll) for rule, values in found.items()}


@dataclass
class Watch:
    """All rules at once over a training run: the curves so far, and what each rule would keep if it ended now."""

    stopping: Stopping
    member_nll: list[Tensor] = field(default_factory=list)  # per epoch [ensembles, members]
    joint_nll: list[Tensor] = field(default_factory=list)  # per epoch [ensembles]; empty under order 1
    progress: dict[Rule, Progress] = field(default_factory=dict)
    kept: dict[str, dict[str, Tensor]] = field(default_factory=dict)  # rule -> what -> logits [ensembles, members, …]

    def update(self, member_nll: Tensor, joint_nll: Tensor | None) -> dict[Rule, Tensor]:
        """Take an epoch's figures; for each rule, the members [ensembles, members] for which it is the best so far."""
        epoch, improved = len(self.member_nll), {}
        self.member_nll.append(member_nll)
        if joint_nll is not None:
            self.joint_nll.append(joint_nll)
        for rule, values in watched(member_nll, joint_nll).items():
            if rule in self.stopping.rules:
                progress = self.progress.setdefault(rule, Progress.start(values))
                improved[rule] = progress.look(epoch, values, self.stopping.patience)
        return improved

    def keep(self, improved: Mapping[Rule, Tensor], what: str, values: Tensor) -> None:
        """Keep the rows of `values` [ensembles, members, …] that an update found improved."""
        for rule, rows in improved.items():
            kept = self.kept.setdefault(rule, {})
            if what not in kept:
                kept[what] = values.clone()
            else:
                kept[what][rows] = values[rows]

    @property
    def stopped(self) -> bool:
        """Whether every rule has stopped in every ensemble."""
        return all(bool(progress.stopped.all()) for progress in self.progress.values())

    def best(self) -> dict[Rule, Tensor]:
        """The epoch (from 1) that each rule keeps, [ensembles, members]."""
        return {rule: progress.best + 1 for rule, progress in self.progress.items()}

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        progress = {rule: dict(p.__dict__) for rule, p in self.progress.items()}
        return {"member_nll": self.member_nll, "joint_nll": self.joint_nll, "kept": self.kept, "progress": progress}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take it up again."""
        self.member_nll, self.joint_nll = list(state["member_nll"]), list(state["joint_nll"])
        self.kept = {rule: dict(kept) for rule, kept in state["kept"].items()}
        self.progress = {rule: Progress(**values) for rule, values in state["progress"].items()}


def validation_nll(predictions: Predictions) -> tuple[Tensor, Tensor | None]:
    """Each member's NLL on its own holdout [ensembles, members], and the ensemble's [ensembles] over each point's
    held-out members, where there are two or more.
    """
    logits, labels = predictions.by_member()
    member_nll = metrics.nll(logits.double().log_softmax(-1), labels)
    if predictions.order == 1:
        return member_nll, None
    logits, labels = predictions.by_point()
    return member_nll, metrics.nll(metrics.ensemble_log_probs(logits.double().log_softmax(-1)), labels)

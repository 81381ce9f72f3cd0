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


def best_epochs(curves: Tensor, patience: int) -> tuple[Tensor, Tensor]:
    """For curves [epochs, …]: the epoch (from 0) that each keeps, and whether it has stopped.

    Only a value below all before counts as better, so a tie keeps the earlier epoch and a NaN never does.
    """
    shape = curves.shape[1:]
    best = torch.zeros(shape, dtype=torch.int64)
    lowest = torch.full(shape, torch.inf, dtype=curves.dtype)
    stopped = torch.zeros(shape, dtype=torch.bool)
    for epoch, values in enumerate(curves):
        better = (values < lowest) & ~stopped
        best = torch.where(better, epoch, best)
        lowest = torch.where(better, values, lowest)
        stopped |= epoch - best >= patience
    return best, stopped


def rule_curves(member_nll: Tensor, joint_nll: Tensor | None) -> dict[Rule, Tensor]:
    """What each rule watches, for every member, [epochs, ensembles, members]; without a joint NLL (order 1) there is no
    joint rule.
    """
    curves: dict[Rule, Tensor] = {"individual": member_nll, "shared_epoch": member_nll.mean(-1, keepdim=True)}
    if joint_nll is not None:
        curves["joint"] = joint_nll.unsqueeze(-1)
    return {rule: curve.expand_as(member_nll) for rule, curve in curves.items()}


@dataclass
class Watch:
    """All rules at once over a training run: the curves so far, and what each rule would keep if it ended now."""

    stopping: Stopping
    member_nll: list[Tensor] = field(default_factory=list)  # per epoch [ensembles, members]
    joint_nll: list[Tensor] = field(default_factory=list)  # per epoch [ensembles]; empty under order 1
    kept: dict[str, dict[str, Tensor]] = field(default_factory=dict)  # rule -> what -> logits [ensembles, members, …]

    def update(self, member_nll: Tensor, joint_nll: Tensor | None) -> dict[Rule, Tensor]:
        """Take an epoch's figures; for each rule, the members [ensembles, members] for which it is the best so far."""
        self.member_nll.append(member_nll)
        if joint_nll is not None:
            self.joint_nll.append(joint_nll)
        now = len(self.member_nll) - 1
        return {rule: best == now for rule, (best, _) in self._state().items()}

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
        return all(bool(stopped.all()) for _, stopped in self._state().values())

    def best(self) -> dict[Rule, Tensor]:
        """The epoch (from 1) that each rule keeps, [ensembles, members]."""
        return {rule: best + 1 for rule, (best, _) in self._state().items()}

    def _state(self) -> dict[Rule, tuple[Tensor, Tensor]]:
        joint = torch.stack(self.joint_nll) if self.joint_nll else None
        curves = rule_curves(torch.stack(self.member_nll), joint)
        patience = self.stopping.patience
        return {rule: best_epochs(curve, patience) for rule, curve in curves.items() if rule in self.stopping.rules}

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"member_nll": self.member_nll, "joint_nll": self.joint_nll, "kept": self.kept}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take it up again."""
        self.member_nll, self.joint_nll = list(state["member_nll"]), list(state["joint_nll"])
        self.kept = {rule: dict(kept) for rule, kept in state["kept"].items()}


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

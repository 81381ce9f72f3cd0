"""A trial with early stopping: one training run that serves all rules and ends when each of them has stopped."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ensgap import metrics
from ensgap.predictions import Predictions
from ensgap.search.run import TrialRun
from ensgap.stopping import Rule, Watch, validation_nll
from ensgap.train import Epoch, batch_bounds


class StoppingRun(TrialRun):
    """After every epoch the holdout is looked at; what a rule finds best, it keeps: predictions, on request weights."""

    def begin(self) -> None:
        """Be at the start of the training."""
        assert self.spec.stopping is not None
        self.watch = Watch(self.spec.stopping)
        self.weights: dict[str, dict[str, dict[str, Tensor]]] = {}  # rule -> "replicate/member" -> weights
        self.templates: dict[str, Predictions] = {}
        super().begin()

    def wants_to_see(self, epoch: Epoch, every: int) -> bool:
        """Every epoch counts."""
        return True

    def has_stopped(self) -> bool:
        """When all rules have."""
        return self.watch.stopped

    def evaluate(self, last: bool) -> dict[str, float]:
        """Look at the holdout, and keep what is best so far; the figures are those of the present epoch."""
        holdout = self.predict_holdout()
        member_nll, joint_nll = validation_nll(holdout)
        improved = self.watch.update(member_nll, joint_nll)
        if any(bool(rows.any()) for rows in improved.values()):
            self._keep(improved, "holdout", holdout)
            self._keep(improved, "test", self.predict_test())
            decisive = [*improved][-1]  # joint; under order 1, the shared epoch
            if self.spec.fast_weights is not None and bool(improved[decisive].any()):  # what a leak is seen by
                self._keep({decisive: improved[decisive]}, "pool", self.predict_pool())
            if self.watch.stopping.keep_weights:
                self._keep_weights(improved)
        return {name: float(values.mean()) for name, values in metrics.evaluate(holdout).items()}

    def _keep(self, improved: dict[Rule, Tensor], what: str, predictions: Predictions) -> None:
        self.templates[what] = predictions
        self.watch.keep(improved, what, predictions.logits)

    def _keep_weights(self, improved: dict[Rule, Tensor]) -> None:
        for rule, rows in improved.items():
            for e, m in rows.nonzero().tolist():
                state = self.training.stack.member_state(e * self.spec.members + m)
                name = f"{self.spec.replicates[e]}/{m}"
                self.weights.setdefault(rule, {})[name] = {key: value.cpu() for key, value in state.items()}

    def results(self) -> tuple[dict[str, Predictions], dict[str, Any]]:
        """What each rule kept, as `<rule>-<where>`; the curves, the epoch that each rule kept for each member, and the
        steps of an epoch.
        """
        for rule, weights in self.weights.items():
            self.folder.save_weights(self.spec, rule, weights)
        predictions = {
            f"{rule}-{what}": replace(self._template(what), logits=logits)
            for rule, kept in self.watch.kept.items()
            for what, logits in kept.items()
        }
        size = self.spec.training.batch_size
        return predictions, {
            "member_nll": torch.stack(self.watch.member_nll).tolist(),
            "joint_nll": torch.stack(self.watch.joint_nll).tolist() if self.watch.joint_nll else None,
            "kept": {rule: epochs.tolist() for rule, epochs in self.watch.best().items()},
            "stopped": self.watch.stopped,
            "steps": len(batch_bounds(self.training.train_index.shape[1], size)),
            "parameters": self.training.stack.parameter_count() // len(self.spec.replicates),
            "pool_steps": len(batch_bounds(len(self.pool), size)),
        }

    def _template(self, what: str) -> Predictions:
        if what not in self.templates:  # after a resume that improved nothing any more
            make = {"holdout": self.predict_holdout, "test": self.predict_test, "pool": self.predict_pool}
            self.templates[what] = make[what]()
        return self.templates[what]

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return super().state_dict() | {"watch": self.watch.state_dict(), "weights": self.weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        super().load_state_dict(state)
        self.watch.load_state_dict(state["watch"])
        self.weights = {rule: dict(kept) for rule, kept in state["weights"].items()}

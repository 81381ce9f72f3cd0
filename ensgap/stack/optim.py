"""Optimizers with a learning rate and a weight decay per member, on torch's fused kernels.

Neighbouring members with equal hyperparameters form a run; a run's slice of every stacked parameter is a tensor in one
parameter group of an ordinary `torch.optim` optimizer.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from ensgap.errors import UserError

OptimizerName = Literal["sgd", "adam"]


class StackOptimizer:
    """SGD with momentum or Adam for stacked parameters [members, …]; weight decay is L2 in the gradient."""

    def __init__(
        self,
        parameters: Sequence[Tensor],
        name: OptimizerName,
        lr: Tensor,  # [members]
        weight_decay: Tensor,  # [members]
        momentum: float = 0.9,
    ) -> None:
        self.parameters = list(parameters)
        members = len(lr)
        wrong = [tuple(p.shape) for p in self.parameters if p.shape[0] != members]
        if wrong or len(weight_decay) != members:
            raise ValueError(
                f"parameters need {members} leading rows, as lr has, however: {wrong=}, {weight_decay.shape=}"
            )
        settings = list(zip(lr.tolist(), weight_decay.tolist(), strict=True))
        starts = [m for m in range(members) if m == 0 or settings[m] != settings[m - 1]]
        self.runs = [slice(a, b) for a, b in zip(starts, [*starts[1:], members], strict=True)]
        groups = []
        for run in self.runs:
            rate, decay = settings[run.start]
            slices = [p.detach()[run] for p in self.parameters]
            groups.append({"params": slices, "lr": rate, "base_lr": rate, "weight_decay": decay})
        self.inner: torch.optim.Optimizer
        if name == "sgd":
            self.inner = torch.optim.SGD(groups, lr=0.1, momentum=momentum, fused=True)
        elif name == "adam":
            self.inner = torch.optim.Adam(groups, fused=True)
        else:
            raise UserError(f"The optimizer must be sgd or adam, not '{name}'.")

    def set_lr_factor(self, factor: float) -> None:
        """Scale every member's own learning rate, as a schedule does."""
        for group in self.inner.param_groups:
            group["lr"] = group["base_lr"] * factor

    def step(self, outputs: Tensor, gradient: Tensor) -> None:
        """One step, given the network's outputs and the gradient of the members' own losses in them."""
        gradients = torch.autograd.grad(outputs, self.parameters, gradient)
        for run, group in zip(self.runs, self.inner.param_groups, strict=True):
            for parameter, gradient in zip(group["params"], gradients, strict=True):
                parameter.grad = gradient[run]
        self.inner.step()

    def state_dict(self) -> dict[str, Any]:
        """The inner optimizer's state, for a checkpoint."""
        return self.inner.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up a checkpoint's state."""
        self.inner.load_state_dict(dict(state))

"""Optimizers with a learning rate and a weight decay per member, on torch's fused kernels.

Neighbouring members with equal hyperparameters form a run; a run's slice of every stacked parameter is a tensor in one
parameter group of an ordinary `torch.optim` optimizer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ensgap.errors import UserError

OptimizerName = Literal["sgd", "adam"]


@dataclass(frozen=True)
class OptimizerConfig:
    """SGD with momentum or Adam; weight decay is L2 in the gradient, of every parameter."""

    name: OptimizerName
    lr: Sequence[float]  # [members]
    weight_decay: Sequence[float]  # [members]
    momentum: float = 0.9


class _FusedOptimizer:
    """A `torch.optim` optimizer on fused kernels whose groups remember their own learning rate."""

    def __init__(self, config: OptimizerConfig, groups: list[tuple[int, list[Tensor]]]) -> None:
        described = [
            {"params": tensors, "lr": config.lr[m], "base_lr": config.lr[m], "weight_decay": config.weight_decay[m]}
            for m, tensors in groups
        ]
        self.inner: torch.optim.Optimizer
        if config.name == "sgd":
            self.inner = torch.optim.SGD(described, lr=0.1, momentum=config.momentum, fused=True)
        elif config.name == "adam":
            self.inner = torch.optim.Adam(described, fused=True)
        else:
            raise UserError(f"The optimizer must be sgd or adam, not '{config.name}'.")

    def set_lr_factor(self, factor: float) -> None:
        """Scale every member's own learning rate, as a schedule does."""
        for group in self.inner.param_groups:
            group["lr"] = group["base_lr"] * factor

    def state_dict(self) -> dict[str, Any]:
        """The inner optimizer's state, for a checkpoint."""
        return self.inner.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up a checkpoint's state."""
        self.inner.load_state_dict(dict(state))


class StackOptimizer(_FusedOptimizer):
    """For stacked parameters [members, …]."""

    def __init__(self, parameters: Sequence[Tensor], config: OptimizerConfig) -> None:
        self.parameters = list(parameters)
        members = len(config.lr)
        wrong = [tuple(p.shape) for p in self.parameters if p.shape[0] != members]
        if wrong or len(config.weight_decay) != members:
            raise ValueError(f"parameters need {members} leading rows, as lr has, however: {wrong=}, {config=}")
        settings = list(zip(config.lr, config.weight_decay, strict=True))
        starts = [m for m in range(members) if m == 0 or settings[m] != settings[m - 1]]
        self.runs = [slice(a, b) for a, b in zip(starts, [*starts[1:], members], strict=True)]
        super().__init__(config, [(run.start, [p.detach()[run] for p in self.parameters]) for run in self.runs])

    def step(self, outputs: Tensor, gradient: Tensor) -> None:
        """One step, given the network's outputs and the gradient of the members' own losses in them."""
        gradients = torch.autograd.grad(outputs, self.parameters, gradient)
        for run, group in zip(self.runs, self.inner.param_groups, strict=True):
            for parameter, found in zip(group["params"], gradients, strict=True):
                parameter.grad = _laid_out_as(parameter, found[run])
        self.inner.step()


class MemberOptimizer(_FusedOptimizer):
    """For the parameters of one ordinary network, which is the given member."""

    def __init__(self, parameters: Sequence[Tensor], config: OptimizerConfig, member: int) -> None:
        self.parameters = list(parameters)
        super().__init__(config, [(member, self.parameters)])

    def step(self, outputs: Tensor, gradient: Tensor) -> None:
        """One step, given the network's outputs and the gradient of the member's loss in them."""
        gradients = torch.autograd.grad(outputs, self.parameters, gradient)
        for parameter, found in zip(self.parameters, gradients, strict=True):
            parameter.grad = _laid_out_as(parameter, found)
        self.inner.step()


def _laid_out_as(parameter: Tensor, gradient: Tensor) -> Tensor:
    """The gradient in the parameter's memory layout, which fused kernels take for granted."""
    if gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter).copy_(gradient)

"""Optimizers with a learning rate and a weight decay per member, on torch's fused kernels.

Neighbouring members with equal hyperparameters form a run; a run's slice of every stacked parameter is one tensor of a
group that is updated at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from ensgap.errors import UserError

OptimizerName = Literal["sgd", "adam"]
ADAM: Any = {"amsgrad": False, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}


@dataclass(frozen=True)
class OptimizerConfig:
    """SGD with momentum or Adam; weight decay is L2 in the gradient, of every parameter."""

    name: OptimizerName
    lr: Sequence[float]  # [members]
    weight_decay: Sequence[float]  # [members]
    momentum: float = 0.9
    label_smoothing: Sequence[float] | None = None  # [members]


@dataclass
class _Group:
    """Tensors that share hyperparameters, and what the optimizer remembers of each."""

    tensors: list[Tensor]
    lr: float
    weight_decay: float
    memory: list[list[Any]]  # tensors; SGD: momentum; Adam: both moments and the steps taken


class _FusedOptimizer:
    """`torch.optim`'s fused SGD or Adam by their functional form, which spares a small step the class's bookkeeping."""

    def __init__(self, config: OptimizerConfig, groups: list[tuple[int, list[Tensor]]]) -> None:
        if config.name not in ("sgd", "adam"):
            raise UserError(f"The optimizer must be sgd or adam, not '{config.name}'.")
        self.config, self.factor = config, 1.0
        self.groups = []
        for member, tensors in groups:
            kinds = 1 if config.name == "sgd" else 2
            memory = [[torch.zeros_like(t) for t in tensors] for _ in range(kinds)]
            if config.name == "adam":
                memory.append([torch.zeros((), device=t.device) for t in tensors])
            self.groups.append(_Group(tensors, config.lr[member], config.weight_decay[member], memory))

    def set_lr_factor(self, factor: float) -> None:
        """Scale every member's own learning rate, as a schedule does."""
        self.factor = factor

    @torch.no_grad()
    def _update(self, group: _Group, gradients: Sequence[Tensor | None]) -> None:
        """One step; tensors without a gradient, which the network did not use, stay as they are."""
        used = [i for i, gradient in enumerate(gradients) if gradient is not None]
        tensors = [group.tensors[i] for i in used]
        memory = [[kind[i] for i in used] for kind in group.memory]
        given = [gradient for gradient in gradients if gradient is not None]
        found = [_laid_out_as(tensor, gradient) for tensor, gradient in zip(tensors, given, strict=True)]
        common: Any = {
            "lr": group.lr * self.factor,
            "weight_decay": group.weight_decay,
            "maximize": False,
            "fused": True,
        }
        if self.config.name == "sgd":
            (momenta,) = memory
            momentum = self.config.momentum
            sgd(tensors, found, momenta, momentum=momentum, dampening=0.0, nesterov=False, **common)
        else:
            means, squares, steps = memory
            adam(tensors, found, means, squares, [], steps, **ADAM, **common)

    def state_dict(self) -> dict[str, Any]:
        """What it remembers, for a checkpoint."""
        return {"memory": [group.memory for group in self.groups]}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up a checkpoint's state."""
        for group, memory in zip(self.groups, state["memory"], strict=True):
            for own, saved in zip(group.memory, memory, strict=True):
                for tensor, value in zip(own, saved, strict=True):
                    tensor.copy_(value)


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
        self.update(torch.autograd.grad(outputs, self.parameters, gradient, allow_unused=True))

    def update(self, gradients: Sequence[Tensor | None]) -> None:
        """One step, given every parameter's gradient."""
        for run, group in zip(self.runs, self.groups, strict=True):
            self._update(group, [None if found is None else found[run] for found in gradients])


class MemberOptimizer(_FusedOptimizer):
    """For the parameters of one ordinary network, which is the given member."""

    def __init__(self, parameters: Sequence[Tensor], config: OptimizerConfig, member: int) -> None:
        self.parameters = list(parameters)
        super().__init__(config, [(member, self.parameters)])

    def step(self, outputs: Tensor, gradient: Tensor) -> None:
        """One step, given the network's outputs and the gradient of the member's loss in them."""
        self._update(self.groups[0], torch.autograd.grad(outputs, self.parameters, gradient, allow_unused=True))


def _laid_out_as(parameter: Tensor, gradient: Tensor) -> Tensor:
    """The gradient in the parameter's memory layout, which fused kernels take for granted."""
    if gradient.is_sparse:
        gradient = gradient.to_dense()
    if gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter).copy_(gradient)

"""Layers over the member axis.

Activations are kept as [members, features, batch]: then one native batch norm serves all members at once, and a linear
layer is one batched matrix product.
"""

from typing import Any

import torch
from torch import Tensor, nn


class StackedLinear(nn.Module):
    """One `nn.Linear` per member."""

    def __init__(self, members: int, inputs: int, outputs: int, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(members, outputs, inputs))
        self.bias = nn.Parameter(torch.empty(members, outputs)) if bias else None

    def forward(self, x: Tensor) -> Tensor:  # [members, inputs, batch] -> [members, outputs, batch]
        if self.bias is None:
            return torch.bmm(self.weight, x)
        return torch.baddbmm(self.bias.unsqueeze(-1), self.weight, x)


class _TrainBatchNorm(torch.autograd.Function):
    """Batch norm in training mode over the last axis of [members, features, batch], with ReLU on request.

    Same arithmetic as `F.batch_norm`; on CPU its statistics take a quarter of the time, because torch's own kernel sums
    each channel in scalar double precision. Views are taken in here, where autograd does not have to follow them.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        running_mean: Tensor,
        running_var: Tensor,
        momentum: float,
        eps: float,
        relu: bool,
    ) -> Tensor:
        batch = x.shape[2]
        mean = x.mean(2)  # [members, features]
        var = (x - mean.unsqueeze(2)).square_().mean(2)
        running_mean.lerp_(mean, momentum)
        running_var.mul_(1 - momentum).add_(var, alpha=momentum * batch / (batch - 1))
        flat = x.view(1, -1, batch)
        y, _, _ = torch.native_batch_norm(
            flat, weight.view(-1), bias.view(-1), mean.view(-1), var.view(-1), False, 0.0, eps
        )
        if relu:
            y.relu_()
        y = y.view_as(x)
        ctx.save_for_backward(x, weight, mean, var, y)
        ctx.eps, ctx.relu = eps, relu
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, var, y = ctx.saved_tensors
        if ctx.relu:
            grad = torch.ops.aten.threshold_backward(grad, y, 0)
        flat = x.view(1, -1, x.shape[2])
        grad_x, grad_weight, grad_bias = torch.ops.aten.native_batch_norm_backward(
            grad.reshape(flat.shape),
            flat,
            weight.view(-1),
            None,
            None,
            mean.view(-1),
            (var + ctx.eps).rsqrt_().view(-1),
            True,
            ctx.eps,
            [True, True, True],
        )
        return grad_x.view_as(x), grad_weight.view_as(weight), grad_bias.view_as(weight), *[None] * 5


class MemberNorm(nn.Module):
    """What batch norms of a stack have in common: weight, bias and running statistics [members, features]."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, members: int, features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = nn.Parameter(torch.ones(members, features))
        self.bias = nn.Parameter(torch.zeros(members, features))
        self.register_buffer("running_mean", torch.zeros(members, features))
        self.register_buffer("running_var", torch.ones(members, features))


class StackedBatchNorm(MemberNorm):
    """One `nn.BatchNorm1d` per member, followed by a ReLU on request: all statistics are the member's own."""

    def __init__(self, members: int, features: int, relu: bool = False) -> None:
        super().__init__(members, features)
        self.relu = relu

    def forward(self, x: Tensor) -> Tensor:  # [members, features, batch] -> the same
        if self.training:
            if x.shape[2] < 2:
                raise ValueError(f"batch norm needs more than one point per member in training, however: {x.shape=}")
            statistics = (self.running_mean, self.running_var)
            y: Tensor = _TrainBatchNorm.apply(
                x.to(self.weight.dtype).contiguous(),
                self.weight,
                self.bias,
                *statistics,
                self.momentum,
                self.eps,
                self.relu,
            )
            return y
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        shift = self.bias - self.running_mean * scale
        y = torch.addcmul(shift.unsqueeze(2), x, scale.unsqueeze(2))
        return y.relu_() if self.relu else y

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


def normalize(x: Tensor, weight: Tensor, bias: Tensor, eps: float, relu: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Batch norm by the batch's own statistics over the last axis of [members, features, batch], with ReLU on request;
    the result, and the mean and reciprocal standard deviation of each channel [members, features].

    In this layout it is a group norm whose every group is one channel. On CPU that kernel is one vectorised pass, where
    batch norm's sums each channel in scalar double precision.
    """
    channels, batch = weight.numel(), x.shape[2]
    y, mean, rstd = torch.native_group_norm(
        x.view(1, channels, batch), weight.view(-1), bias.view(-1), 1, channels, batch, channels, eps
    )
    if relu:
        y.relu_()
    return y.view_as(x), mean.view_as(weight), rstd.view_as(weight)


def normalize_backward(
    grad: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients in x, weight and bias, given that in the result before ReLU."""
    channels, batch = weight.numel(), x.shape[2]
    flat = (1, channels, batch)
    row = (1, channels)
    sizes = (1, channels, batch, channels)
    grad_x, grad_weight, grad_bias = torch.ops.aten.native_group_norm_backward(
        grad.reshape(flat), x.view(flat), mean.view(row), rstd.view(row), weight.view(-1), *sizes, [True] * 3
    )
    return grad_x.view_as(x), grad_weight.view_as(weight), grad_bias.view_as(weight)


class _Normalize(torch.autograd.Function):
    """`normalize` under autograd, which does not have to follow the views taken in it."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float, relu: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        y, mean, rstd = normalize(x, weight, bias, eps, relu)
        ctx.save_for_backward(x, weight, mean, rstd, y)
        ctx.relu = relu
        ctx.mark_non_differentiable(mean, rstd)
        return y, mean, rstd

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, rstd, y = ctx.saved_tensors
        if ctx.relu:
            grad = torch.ops.aten.threshold_backward(grad, y, 0)
        return *normalize_backward(grad, x, weight, mean, rstd), None, None


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
            y: Tensor
            y, mean, rstd = _Normalize.apply(
                x.to(self.weight.dtype).contiguous(), self.weight, self.bias, self.eps, self.relu
            )
            self.track(mean, rstd, x.shape[2])
            return y
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        shift = self.bias - self.running_mean * scale
        y = torch.addcmul(shift.unsqueeze(2), x, scale.unsqueeze(2))
        return y.relu_() if self.relu else y

    @torch.no_grad()
    def track(self, mean: Tensor, rstd: Tensor, batch: int) -> None:
        """Move the running statistics towards a batch's."""
        if batch < 2:
            raise ValueError(f"batch norm needs more than one point per member in training, however: {batch=}")
        self.running_mean.lerp_(mean, self.momentum)
        unbiased = self.momentum * batch / (batch - 1)
        self.running_var.mul_(1 - self.momentum).add_(rstd.pow(-2).sub_(self.eps), alpha=unbiased)

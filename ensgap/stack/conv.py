"""Convolution and its batch norm over the member axis; activations are [batch, members · channels, height, width]."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensgap.stack.layers import MemberNorm


class StackedConv2d(nn.Module):
    """One `nn.Conv2d` without bias per member, as one grouped convolution."""

    def __init__(self, members: int, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.members, self.stride, self.padding = members, stride, kernel // 2
        self.weight = nn.Parameter(torch.empty(members, outputs, inputs, kernel, kernel))

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight.flatten(0, 1), None, self.stride, self.padding, groups=self.members)


class StackedBatchNorm2d(MemberNorm):
    """One `nn.BatchNorm2d` per member: to a batch norm, members are more channels."""

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(
            x,
            self.running_mean.view(-1),
            self.running_var.view(-1),
            self.weight.view(-1),
            self.bias.view(-1),
            training=self.training,
            momentum=self.momentum,
            eps=self.eps,
        )

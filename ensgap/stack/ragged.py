"""Layers for members with different numbers of rows, such as the nodes of their graphs: rows are grouped by member."""

import torch
from torch import Tensor

from ensgap.stack.layers import MemberNorm


def one_hot(labels: Tensor, classes: int, dtype: torch.dtype) -> Tensor:  # [rows] -> [rows, classes]
    """As `F.one_hot`, which looks at the labels and so makes the host wait for a GPU."""
    return (labels.unsqueeze(-1) == torch.arange(classes, device=labels.device)).to(dtype)


def ragged_linear(x: Tensor, weight: Tensor, member: Tensor, slot: Tensor, longest: int) -> Tensor:
    """Each row [rows, inputs] times its own member's weight [members, outputs, inputs]: one batched product on rows
    padded to the longest member.
    """
    padded = x.new_zeros(weight.shape[0], longest, x.shape[1]).index_put((member, slot), x)
    return torch.bmm(padded, weight.transpose(1, 2))[member, slot]


class RaggedBatchNorm(MemberNorm):
    """One `nn.BatchNorm1d` per member over its own rows."""

    def forward(self, x: Tensor, member: Tensor) -> Tensor:  # [rows, features], [rows] -> [rows, features]
        x = x.to(self.weight.dtype)
        if self.training:
            own = one_hot(member, self.weight.shape[0], x.dtype)  # [rows, members]
            count = own.sum(0).unsqueeze(1)
            mean = own.T @ x / count  # [members, features]
            centred = x - mean[member]
            var = own.T @ centred.square() / count
            with torch.no_grad():
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(var * count / (count - 1), self.momentum)
        else:
            mean, var = self.running_mean, self.running_var
            centred = x - mean[member]
        scale = self.weight * (var + self.eps).rsqrt()
        return centred * scale[member] + self.bias[member]

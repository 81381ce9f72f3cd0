"""A graph convolutional network: 24,204 parameters with 37 node labels and 64 hidden features, 89,292 with 128.

BN → linear → ReLU → 4 × [BN → graph convolution → ReLU] → sum over a graph's nodes → BN → linear → ReLU → BN → linear.
"""

from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from ensgap.graphs import GraphBatch
from ensgap.networks.gcn_kernels import linear_backward, linear_forward, norm_backward, statistics
from ensgap.stack.compiled import array, arrays, takes
from ensgap.stack.layers import StackedBatchNorm, StackedLinear
from ensgap.stack.ragged import RaggedBatchNorm, one_hot, ragged_linear

CONVOLUTIONS = 4


class _Convolve(torch.autograd.Function):
    """Batch norm by the statistics given, the normalised adjacency times that, linear, ReLU: compiled, for one member.
    The adjacency is symmetric, so the backward pass applies it again.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        mean: Tensor,
        rstd: Tensor,
        scale: Tensor,
        shift: Tensor,
        weight: Tensor,
        bias: Tensor,
        batch: GraphBatch,
    ) -> Tensor:
        slope = scale * rstd
        near, y = batch.propagate(x.detach()), x.new_empty(len(x), len(weight))
        linear_forward(*arrays((near, slope, shift - mean * slope, batch.row_sums.to(x.dtype), weight.T, bias, y)))
        ctx.save_for_backward(y, near, x, mean, rstd, scale, weight)
        ctx.batch = batch
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        y, near, x, mean, rstd, scale, weight = ctx.saved_tensors
        below, grad_scale, grad_shift = (torch.empty_like(like) for like in (x, scale, scale))
        grad_weight, grad_bias = torch.zeros_like(weight), weight.new_zeros(len(weight))
        linear_backward(*arrays((grad, y, near, weight, below, grad_weight, grad_bias)))
        grad_x = ctx.batch.propagate(below)
        norm_backward(*arrays((grad_x, x, mean, rstd, scale, grad_scale, grad_shift)))
        return grad_x, None, None, grad_scale, grad_shift, grad_weight, grad_bias, None


class _Propagate(torch.autograd.Function):
    """The normalised adjacency times node features, for all members at once."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, batch: GraphBatch) -> Tensor:  # [nodes, features] -> the same
        ctx.batch = batch
        return batch.propagate(x.detach())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.batch.propagate(grad.contiguous()), None


class _SumNodes(torch.autograd.Function):
    """The sum over each graph's nodes [nodes, features] -> [graphs, features]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, batch: GraphBatch) -> Tensor:
        ctx.batch = batch
        return batch.sum_nodes(x.detach())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad.index_select(0, ctx.batch.graph_of_node), None


def convolve(
    x: Tensor, norm: nn.BatchNorm1d, linear: nn.Linear, batch: GraphBatch
) -> Tensor:  # [nodes, features] -> the same
    """Batch norm, graph convolution and ReLU, for one member."""
    if not takes(x):
        return F.linear(_Propagate.apply(norm(x), batch), linear.weight, linear.bias).relu()
    assert norm.running_mean is not None and norm.running_var is not None and norm.momentum is not None
    assert norm.num_batches_tracked is not None
    if norm.training:
        nodes = len(x)
        mean, rstd = torch.empty_like(norm.running_mean), torch.empty_like(norm.running_var)
        statistics(array(x), norm.eps, mean.numpy(), rstd.numpy())
        norm.num_batches_tracked += 1
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_((rstd.pow(-2) - norm.eps) * (nodes / (nodes - 1)), norm.momentum)
    else:
        mean, rstd = norm.running_mean, (norm.running_var + norm.eps).rsqrt()
    found: Tensor = _Convolve.apply(x, mean, rstd, norm.weight, norm.bias, linear.weight, linear.bias, batch)
    return found


class GCN(nn.Module):
    """One member."""

    def __init__(self, labels: int, hidden: int, classes: int, generator: Generator | None = None) -> None:
        super().__init__()
        self.labels = labels
        self.norms: Any = nn.ModuleList(nn.BatchNorm1d(n) for n in (labels, *[hidden] * (CONVOLUTIONS + 2)))
        widths = [(labels, hidden), *[(hidden, hidden)] * (CONVOLUTIONS + 1), (hidden, classes)]
        self.linears: Any = nn.ModuleList(nn.Linear(*width) for width in widths)
        for linear in list[Any](self.linears):
            nn.init.xavier_uniform_(linear.weight, generator=generator)
            nn.init.zeros_(linear.bias)
        for norm in list[Any](self.norms):
            nn.init.constant_(norm.bias, 1e-4)

    def forward(self, batch: GraphBatch) -> Tensor:  # -> [graphs, classes]
        x = F.embedding(batch.node_labels, self._first_layer(batch.node_labels))
        for layer in range(1, CONVOLUTIONS + 1):
            x = convolve(x, self.norms[layer], self.linears[layer], batch)
        x = _SumNodes.apply(x, batch)
        x = F.relu(self.linears[-2](self.norms[-2](x)))
        logits: Tensor = self.linears[-1](self.norms[-1](x))
        return logits

    def _first_layer(self, node_labels: Tensor) -> Tensor:  # [nodes] -> [labels, hidden]
        """BN → linear → ReLU of one-hot inputs, which take only as many values as there are labels: a table to look
        rows up in.
        """
        norm, linear = self.norms[0], self.linears[0]
        if self.training:
            nodes = len(node_labels)
            counts = torch.zeros_like(norm.weight.detach())
            mean = counts.index_add_(0, node_labels, counts.new_ones(()).expand(nodes)) / nodes
            var = mean * (1 - mean)
            with torch.no_grad():
                norm.running_mean.lerp_(mean, norm.momentum)
                norm.running_var.lerp_(var * (nodes / (nodes - 1)), norm.momentum)
        else:
            mean, var = norm.running_mean, norm.running_var
        scale = norm.weight * (var + norm.eps).rsqrt()  # [labels]
        common = linear.bias + linear.weight @ (norm.bias - mean * scale)  # [hidden]
        return torch.addcmul(common, linear.weight.T, scale.unsqueeze(1)).relu()


class StackedGCN(nn.Module):
    """All members at once, on one block-diagonal graph whose nodes are grouped by member."""

    def __init__(self, members: int, labels: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.labels = labels
        node_norms = (RaggedBatchNorm(members, n) for n in (labels, *[hidden] * CONVOLUTIONS))
        graph_norms = (StackedBatchNorm(members, hidden) for _ in range(2))
        self.norms: Any = nn.ModuleList([*node_norms, *graph_norms])
        widths = [(labels, hidden), *[(hidden, hidden)] * (CONVOLUTIONS + 1), (hidden, classes)]
        self.linears: Any = nn.ModuleList(StackedLinear(members, *width) for width in widths)

    def forward(self, batch: GraphBatch) -> Tensor:  # -> [members, graphs, classes]
        member, slot, longest = batch.member_of_node, batch.slot_of_node, batch.longest
        x = one_hot(batch.node_labels, self.labels, self.linears[0].weight.dtype)
        x = self.norms[0](x, member)
        first = self.linears[0]
        x = F.relu(ragged_linear(x, first.weight, member, slot, longest) + first.bias[member])
        for layer in range(1, CONVOLUTIONS + 1):
            linear = self.linears[layer]
            x = _Propagate.apply(self.norms[layer](x, member), batch)
            x = F.relu(ragged_linear(x, linear.weight, member, slot, longest) + linear.bias[member])
        x = _SumNodes.apply(x, batch).unflatten(0, (batch.members, -1)).transpose(1, 2)  # [members, hidden, graphs]
        x = F.relu(self.linears[-2](self.norms[-2](x)))
        logits: Tensor = self.linears[-1](self.norms[-1](x))
        return logits.transpose(1, 2)

"""The loss and gradients of a stacked MLP, written out.

A small network's step is many operations of microseconds, and autograd adds to each.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ensgap.networks.mlp_gradients_grouped import grouped_gradients
from ensgap.stack.layers import StackedBatchNorm, StackedLinear, normalize, normalize_backward
from ensgap.stack.products import LARGE, bmm, narrow_product, suits_onednn
from ensgap.stack.stack import nll_and_gradient

FEW = 8
"""Members below which a step is a matter of overhead."""


@torch.no_grad()
def mlp_gradients(
    hidden: Sequence[tuple[StackedLinear, StackedBatchNorm]],
    last: StackedLinear,
    inputs: Tensor,  # [members, batch, inputs]
    labels: Tensor,  # [members, batch]
    batch_size: int,
) -> tuple[Tensor, list[Tensor]]:
    """Each member's loss summed over its batch, [members], and the gradients of that over `batch_size`, in the order of
    the layers' parameters. Hidden layers have no bias, and ReLU in their batch norm.
    """
    assert last.bias is not None
    members, batch, _ = inputs.shape
    small = all(linear.weight[0].numel() * batch < LARGE for linear, _ in hidden)
    if suits_onednn(inputs) and members >= FEW and small:
        return grouped_gradients(hidden, last, inputs, labels, batch_size)
    x = inputs.transpose(1, 2)  # [members, features, batch], as all that follows
    saved = []
    for linear, norm in hidden:
        z = narrow_product(linear.weight, x)
        y, mean, rstd = normalize(z, norm.weight, norm.bias, norm.eps, relu=True)
        norm.track(mean, rstd, batch)
        saved.append((linear.weight, norm.weight, x, z, mean, rstd, y))
        x = y
    logits = torch.baddbmm(last.bias.unsqueeze(2), last.weight, x)
    nll, grad = nll_and_gradient(logits, labels, dim=1)
    grad.div_(batch_size)
    found = [grad.sum(2), torch.bmm(grad, x.transpose(1, 2))]  # from the last parameter to the first
    above = last.weight
    for weight, scale, x, z, mean, rstd, y in reversed(saved):
        grad = narrow_product(above.transpose(1, 2), grad)
        torch.ops.aten.threshold_backward(grad, y, 0, grad_input=grad)
        grad, *grads = normalize_backward(grad, z, scale, mean, rstd)
        found += [*reversed(grads), bmm(grad, x.transpose(1, 2))]
        above = weight
    return nll, found[::-1]

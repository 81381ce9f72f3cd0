"""The loss and gradients of a stacked MLP, written out.

A small network's step is many operations of microseconds, and autograd adds to each.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ensgap.stack.layers import StackedBatchNorm, StackedLinear, normalize, normalize_backward
from ensgap.stack.products import bmm
from ensgap.stack.stack import nll_and_gradient

GROUP = 16
"""Members that are computed together: of more, the tensors leave the cache between one operation and the next."""


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
    parameters = [p for linear, norm in hidden for p in (linear.weight, norm.weight, norm.bias)]
    found = [torch.empty_like(p, requires_grad=False) for p in [*parameters, last.weight, last.bias]]
    groups = [slice(start, start + GROUP) for start in range(0, len(inputs), GROUP)]
    nll = [
        _of_group(some, hidden, last, inputs[some], labels[some], batch_size, [gradient[some] for gradient in found])
        for some in groups
    ]
    return torch.cat(nll), found


@torch.no_grad()
def _of_group(
    some: slice,
    hidden: Sequence[tuple[StackedLinear, StackedBatchNorm]],
    last: StackedLinear,
    inputs: Tensor,  # [members, batch, inputs], of this group
    labels: Tensor,
    batch_size: int,
    found: Sequence[Tensor],
) -> Tensor:
    """The losses of some members, whose gradients are put where they are to be found."""
    assert last.bias is not None
    batch = inputs.shape[1]
    x = inputs.transpose(1, 2)  # [members, features, batch], as all that follows
    saved = []
    for linear, norm in hidden:
        weight, scale = linear.weight[some], norm.weight[some]
        z = bmm(weight, x)
        y, mean, rstd = normalize(z, scale, norm.bias[some], norm.eps, relu=True)
        norm.track(mean, rstd, batch, some)
        saved.append((weight, scale, x, z, mean, rstd, y))
        x = y
    above = last.weight[some]
    logits = bmm(above, x).add_(last.bias[some].unsqueeze(2))
    nll, grad = nll_and_gradient(logits, labels, dim=1)
    grad.div_(batch_size)
    torch.sum(grad, 2, out=found[-1])
    bmm(grad, x.transpose(1, 2), out=found[-2])
    for layer, (weight, scale, x, z, mean, rstd, y) in reversed([*enumerate(saved)]):
        grad = bmm(above.transpose(1, 2), grad)
        torch.ops.aten.threshold_backward(grad, y, 0, grad_input=grad)
        grad, grad_scale, grad_shift = normalize_backward(grad, z, scale, mean, rstd)
        for own, gradient in zip(found[3 * layer + 1 : 3 * layer + 3], (grad_scale, grad_shift), strict=True):
            own.copy_(gradient)
        bmm(grad, x.transpose(1, 2), out=found[3 * layer])
        above = weight
    return nll

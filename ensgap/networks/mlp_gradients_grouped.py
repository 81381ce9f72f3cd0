"""The gradients of a stacked MLP with many small members, on a CPU.

Activations and their gradients are kept as [features, members, batch], in which all products are `grouped_product`s;
what one of them needs on its other side is copied to [members, features, batch], whole rows at a time. On digits that
makes an epoch 1.04 times as fast with 8 members and 1.15 times with 32 as the other way.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ensgap.stack.layers import StackedBatchNorm, StackedLinear, normalize, normalize_backward
from ensgap.stack.products import grouped_product
from ensgap.stack.stack import nll_and_gradient

GROUP = 16
"""Members that are computed together: of more, the tensors leave the cache between one operation and the next."""


def grouped_gradients(
    hidden: Sequence[tuple[StackedLinear, StackedBatchNorm]],
    last: StackedLinear,
    inputs: Tensor,  # [members, batch, inputs]
    labels: Tensor,  # [members, batch]
    batch_size: int,
) -> tuple[Tensor, list[Tensor]]:
    """As `mlp_gradients`."""
    groups = [slice(start, start + GROUP) for start in range(0, len(inputs), GROUP)]
    found = [_of_group(some, hidden, last, inputs[some], labels[some], batch_size) for some in groups]
    if len(found) == 1:
        return found[0]
    nll, gradients = zip(*found, strict=True)
    return torch.cat(nll), [torch.cat(parts) for parts in zip(*gradients, strict=True)]


@torch.no_grad()
def _of_group(
    some: slice,
    hidden: Sequence[tuple[StackedLinear, StackedBatchNorm]],
    last: StackedLinear,
    inputs: Tensor,  # [members, batch, inputs], of this group
    labels: Tensor,
    batch_size: int,
) -> tuple[Tensor, list[Tensor]]:
    """The same of some members."""
    assert last.bias is not None
    batch = inputs.shape[1]
    x = inputs.transpose(1, 2)  # [members, features, batch], as every x and y that follows
    saved = []
    for linear, norm in hidden:
        weight = linear.weight[some]
        z = grouped_product(weight.transpose(0, 1), x).contiguous()  # [features, members, batch], as gradients are
        scale, shift = norm.weight[some].T.contiguous(), norm.bias[some].T.contiguous()
        normal, mean, rstd = normalize(z, scale, shift, norm.eps, relu=False)
        norm.track(mean.T, rstd.T, batch, some)
        y = z.new_empty(z.shape[1], z.shape[0], batch)
        torch.clamp_min(normal, 0, out=y.transpose(0, 1))
        saved.append((weight, scale, x, z, mean, rstd, normal))
        x = y
    logits = torch.baddbmm(last.bias[some].unsqueeze(2), last.weight[some], x)
    nll, grad = nll_and_gradient(logits, labels, dim=1)
    grad.div_(batch_size)
    found = [grad.sum(2), torch.bmm(grad, x.transpose(1, 2))]  # from the last parameter to the first
    grad = torch.bmm(last.weight[some].transpose(1, 2), grad).transpose(0, 1)
    for layer, (weight, scale, x, z, mean, rstd, normal) in reversed([*enumerate(saved)]):
        masked = torch.empty_like(z)
        torch.ops.aten.threshold_backward(grad, normal, 0, grad_input=masked)
        grad, grad_scale, grad_shift = normalize_backward(masked, z, scale, mean, rstd)
        grad_weight = grouped_product(grad, x.transpose(1, 2)).transpose(0, 1)
        found += [grad_shift.T, grad_scale.T, grad_weight]
        if layer > 0:
            back = weight.transpose(1, 2).contiguous().transpose(0, 1)  # [inputs, members, outputs]
            grad = grouped_product(back, grad.transpose(0, 1).contiguous())
    return nll, found[::-1]

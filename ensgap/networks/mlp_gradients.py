"""The loss and gradients of a stacked MLP on a CPU, without autograd: tensors to arrays and back."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ensgap.networks.mlp_kernels import Layer, Statistics, gradients_of_all
from ensgap.stack.compiled import array
from ensgap.stack.layers import StackedBatchNorm, StackedLinear


def mlp_gradients(
    hidden: Sequence[tuple[StackedLinear, StackedBatchNorm]],
    last: StackedLinear,
    inputs: Tensor,  # [members, batch, inputs]
    labels: Tensor,  # [members, batch]; floating-point ones are targets of a regression
    batch_size: int,
) -> tuple[Tensor, list[Tensor]]:
    """Each member's loss summed over its batch, [members], and the gradients of that over `batch_size`, in the order of
    the layers' parameters. Hidden layers have no bias, and ReLU in their batch norm.
    """
    assert last.bias is not None
    parameters = [p for linear, norm in hidden for p in (linear.weight, norm.weight, norm.bias)]
    parameters += [last.weight, last.bias]
    gradients = [torch.empty_like(p, requires_grad=False) for p in parameters]
    statistics = [(torch.empty_like(n.running_mean), torch.empty_like(n.running_mean)) for _, n in hidden]
    none = inputs.new_empty(len(inputs), 0)
    nll = inputs.new_empty(len(inputs))
    gradients_of_all(
        array(inputs),
        array(labels),
        labels.is_floating_point(),
        _layers(parameters, none),
        _layers(gradients, none),
        tuple(Statistics(array(mean), array(rstd)) for mean, rstd in [*statistics, (none, none)]),
        hidden[0][1].eps if hidden else 0.0,
        batch_size,
        array(nll),
    )
    for (_, norm), (mean, rstd) in zip(hidden, statistics, strict=True):
        norm.track(mean, rstd, inputs.shape[1])
    return nll, gradients


def _layers(tensors: Sequence[Tensor], none: Tensor) -> tuple[Layer, ...]:
    *hidden, weight, bias = tensors
    triples = [*(hidden[i : i + 3] for i in range(0, len(hidden), 3)), (weight, none, bias)]
    return tuple(Layer(*map(array, triple)) for triple in triples)

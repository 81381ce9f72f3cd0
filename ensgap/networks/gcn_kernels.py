"""What a graph convolution of one member and the batch norm before it do beside the adjacency, compiled for a CPU.

Nodes are taken in blocks, so that what a block's product needs is still in the cache. The normalised features are never
written out, because the adjacency A can be applied before them: A (a x + b) = a (A x) + b (the sums of A's rows).
"""

import numpy as np

from ensgap.stack.compiled import Array, compiled

BLOCK = 128
"""Nodes of a block at the most."""
SMALL = 1_000_000
"""Multiplications of a product up to which OpenBLAS has kernels for small matrices."""


@compiled
def rows_of_block(features: int, outputs: int) -> int:
    """Few enough for such kernels; a multiple of 4."""
    return int(min(BLOCK, max(4, SMALL // (features * outputs) // 4 * 4)))


@compiled
def statistics(x: Array, eps: float, mean: Array, rstd: Array) -> None:
    """The mean and the reciprocal standard deviation of each feature [features] over all nodes of x."""
    nodes, features = x.shape
    total, square = np.zeros(features), np.zeros(features)
    for node in range(nodes):
        for f in range(features):
            value = float(x[node, f]) - float(x[0, f])
            total[f] += value
            square[f] += value * value
    for f in range(features):
        centre = total[f] / nodes
        mean[f] = x[0, f] + centre
        rstd[f] = 1 / np.sqrt(max(square[f] / nodes - centre * centre, 0.0) + eps)


@compiled
def linear_forward(
    near: Array,  # [nodes, features]: the adjacency times the features; normalised in place
    slope: Array,  # [features]: batch norm gives slope · x + offset
    offset: Array,
    row_sums: Array,  # [nodes]
    weight: Array,  # [features, outputs]
    bias: Array,  # [outputs]
    y: Array,  # [nodes, outputs]
) -> None:
    """Batch norm, linear and ReLU."""
    zero, rows = y.dtype.type(0), rows_of_block(*weight.shape)
    for first in range(0, len(near), rows):
        stop = min(first + rows, len(near))
        for node in range(first, stop):
            for f in range(len(slope)):
                near[node, f] = slope[f] * near[node, f] + offset[f] * row_sums[node]
        np.dot(near[first:stop], weight, y[first:stop])
        for node in range(first, stop):
            for f in range(len(bias)):
                value = y[node, f] + bias[f]
                y[node, f] = zero if value < zero else value


@compiled
def linear_backward(
    grad: Array,  # [nodes, outputs]
    y: Array,
    near: Array,
    weight: Array,  # [outputs, features]
    below: Array,  # [nodes, features]: the gradient in the normalised `near`
    grad_weight: Array,
    grad_bias: Array,
) -> None:
    """The gradients in what `linear_forward` multiplies, and in its weight and bias, which must begin as zeros."""
    zero, rows = y.dtype.type(0), rows_of_block(*weight.shape)
    masked, part = np.empty((rows, len(weight)), y.dtype), np.empty_like(weight)
    for first in range(0, len(y), rows):
        stop = min(first + rows, len(y))
        own = masked[: stop - first]
        for node in range(first, stop):
            for f in range(len(weight)):
                value = zero if y[node, f] <= zero else grad[node, f]
                own[node - first, f] = value
                grad_bias[f] += value
        np.dot(own.T, near[first:stop], part)
        grad_weight += part
        np.dot(own, weight, below[first:stop])


@compiled
def norm_backward(
    grad: Array, x: Array, mean: Array, rstd: Array, scale: Array, grad_scale: Array, grad_shift: Array
) -> None:
    """The gradient in the normalised features becomes, in place, that in x [nodes, features]."""
    nodes, features = x.shape
    total, along = np.zeros(features, x.dtype), np.zeros(features, x.dtype)
    for node in range(nodes):
        for f in range(features):
            total[f] += grad[node, f]
            along[f] += grad[node, f] * (x[node, f] - mean[f])
    count = x.dtype.type(nodes)
    common, slope, factor = total / count, along * rstd * rstd / count, scale * rstd
    for f in range(features):
        grad_shift[f], grad_scale[f] = total[f], along[f] * rstd[f]
    for node in range(nodes):
        for f in range(features):
            grad[node, f] = factor[f] * (grad[node, f] - common[f] - (x[node, f] - mean[f]) * slope[f])

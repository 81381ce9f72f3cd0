"""The training step of stacked MLPs up to the gradients, compiled for a CPU.

Member after member, so that all that one member needs stays in a core's cache from one operation to the next.
Activations are [features, batch]: batch norm takes a row, which stays in the nearest cache.
"""

from typing import Any, NamedTuple

import numpy as np

from ensgap.gaussian import LEAST_VARIANCE, LOG_2PI
from ensgap.stack.compiled import Array, compiled

SMALL = 1_000_000
"""Multiplications of a product up to which OpenBLAS has kernels that need no packing, a quarter faster."""


class Layer(NamedTuple):
    """A linear layer and the batch norm after it, or their gradients; the last layer has a bias and no batch norm."""

    weight: Array  # [members, outputs, inputs]
    scale: Array  # [members, outputs]; of the last layer empty
    shift: Array  # [members, outputs]; of the last layer its bias


class Statistics(NamedTuple):
    """A batch's, of what a layer's batch norm is given; of the last layer empty."""

    mean: Array  # [members, outputs]
    rstd: Array  # [members, outputs]: the reciprocal standard deviation


@compiled
def multiply(a: Array, b: Array, out: Array) -> None:  # [m, k], [k, n] -> [m, n], all in row-major order
    """The product, in blocks of rows that are small, if they have at least 16."""
    rows = SMALL // (a.shape[1] * b.shape[1]) // 16 * 16
    if rows == 0:
        np.dot(a, b, out)
        return
    for first in range(0, len(a), rows):
        np.dot(a[first : first + rows], b, out[first : first + rows])


@compiled
def add(z: Array, bias: Array) -> None:  # [features, batch], [features]
    """In place."""
    for row in range(len(z)):
        for i in range(z.shape[1]):
            z[row, i] += bias[row]


@compiled
def add_up(z: Array, sums: Array) -> None:  # [features, batch], [features]
    """The sum of each row."""
    for row in range(len(z)):
        total = z.dtype.type(0)
        for i in range(z.shape[1]):
            total += z[row, i]
        sums[row] = total


@compiled
def normalize(z: Array, scale: Array, shift: Array, eps: float, y: Array, mean: Array, rstd: Array) -> None:
    """Batch norm of z [features, batch] by the batch's own statistics, and ReLU; what is not a number stays so."""
    number = z.dtype.type
    zero, one, batch = number(0), number(1), number(z.shape[1])
    for row in range(len(z)):
        total = zero
        for i in range(z.shape[1]):
            total += z[row, i]
        centre, square = total / batch, zero
        for i in range(z.shape[1]):
            square += (z[row, i] - centre) * (z[row, i] - centre)
        mean[row], rstd[row] = centre, one / np.sqrt(square / batch + number(eps))
        slope = scale[row] * rstd[row]
        offset = shift[row] - centre * slope
        for i in range(z.shape[1]):
            value = slope * z[row, i] + offset
            y[row, i] = zero if value < zero else value


@compiled
def normalize_backward(
    grad: Array, z: Array, y: Array, scale: Array, mean: Array, rstd: Array, grad_scale: Array, grad_shift: Array
) -> None:
    """The gradient in y becomes, in place, that in z [features, batch]; those in scale and shift [features]."""
    zero, batch = z.dtype.type(0), z.dtype.type(z.shape[1])
    for row in range(len(z)):
        centre, over, total, along = mean[row], rstd[row], zero, zero
        for i in range(z.shape[1]):
            own = zero if y[row, i] <= zero else grad[row, i]
            grad[row, i] = own
            total += own
            along += own * (z[row, i] - centre)
        grad_shift[row], grad_scale[row] = total, along * over
        factor = scale[row] * over
        common, slope = total / batch, along * over * over / batch
        for i in range(z.shape[1]):
            grad[row, i] = factor * (grad[row, i] - common - (z[row, i] - centre) * slope)


@compiled
def cross_entropy(logits: Array, labels: Array, batch_size: int, grad: Array) -> Any:
    """The loss of [classes, batch], summed, and its gradient over `batch_size`."""
    number = logits.dtype.type
    batch, one, size = logits.shape[1], number(1), number(batch_size)
    top, total = logits[0].copy(), np.zeros(batch, logits.dtype)
    for row in logits[1:]:
        for i in range(batch):
            top[i] = max(top[i], row[i])
    for row in range(len(logits)):
        for i in range(batch):
            grad[row, i] = np.exp(logits[row, i] - top[i])
            total[i] += grad[row, i]
    loss = number(0)
    for i in range(batch):
        loss += np.log(total[i]) + top[i] - logits[int(labels[i]), i]
        total[i] = one / (total[i] * size)
    for row in range(len(logits)):
        for i in range(batch):
            grad[row, i] *= total[i]
    for i in range(batch):
        grad[int(labels[i]), i] -= one / size
    return loss


@compiled
def gaussian(outputs: Array, targets: Array, batch_size: int, grad: Array) -> Any:
    """The same of a regression's [mean and variance, batch]; see `ensgap.gaussian`."""
    number = outputs.dtype.type
    loss, half, one, size = number(0), number(0.5), number(1), number(batch_size)
    for i in range(outputs.shape[1]):
        mean, raw = outputs[0, i], outputs[1, i]
        decay = np.exp(-abs(raw))
        variance = max(raw, number(0)) + np.log1p(decay) + number(LEAST_VARIANCE)
        surplus = mean - targets[i]
        in_mean = surplus / variance
        loss += half * (number(LOG_2PI) + np.log(variance) + surplus * in_mean)
        sigmoid = (decay if raw < 0 else one) / (one + decay)
        grad[0, i], grad[1, i] = in_mean / size, half * (one / variance - in_mean * in_mean) * sigmoid / size
    return loss


@compiled
def gradients_of_all(
    inputs: Array,  # [members, batch, features]
    labels: Array,  # [members, batch]
    regression: bool,
    layers: tuple[Layer, ...],
    gradients: tuple[Layer, ...],
    statistics: tuple[Statistics, ...],
    eps: float,
    batch_size: int,
    nll: Array,  # [members]
) -> None:
    """Forward pass, loss and backward pass of one member after the other."""
    last, batch = len(layers) - 1, inputs.shape[1]
    widest = 0
    for layer in layers:
        widest = max(widest, layer.weight.shape[1])
    before = np.empty((last + 1, widest, batch), inputs.dtype)  # what a layer's product gives
    after = np.empty_like(before)  # that, normalised and rectified
    slopes = np.empty((2, widest, batch), inputs.dtype)  # the loss's in `before`: of a layer and the one above
    for m in range(len(inputs)):
        for i in range(last + 1):
            outputs, width = layers[i].weight[m].shape
            z, own = before[i, :outputs], statistics[i]
            if i == 0:
                np.dot(layers[i].weight[m], inputs[m].T, z)
            else:
                multiply(layers[i].weight[m], after[i - 1, :width], z)
            if i < last:
                normalize(z, layers[i].scale[m], layers[i].shift[m], eps, after[i, :outputs], own.mean[m], own.rstd[m])
            else:
                add(z, layers[i].shift[m])
        for i in range(last, -1, -1):
            outputs, width = layers[i].weight[m].shape
            z, own, found, slope = before[i, :outputs], statistics[i], gradients[i], slopes[i % 2, :outputs]
            if i < last:
                above = layers[i + 1].weight[m]
                np.dot(above.T, slopes[(i + 1) % 2, : len(above)], slope)
                y, scale = after[i, :outputs], layers[i].scale[m]
                normalize_backward(slope, z, y, scale, own.mean[m], own.rstd[m], found.scale[m], found.shift[m])
            else:
                if regression:
                    nll[m] = gaussian(z, labels[m], batch_size, slope)
                else:
                    nll[m] = cross_entropy(z, labels[m], batch_size, slope)
                add_up(slope, found.shift[m])
            if i == 0:
                multiply(slope, inputs[m], found.weight[m])
            else:
                np.dot(slope, after[i - 1, :width].T, found.weight[m])

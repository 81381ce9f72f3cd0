"""Matrix products by the faster of the two libraries that torch brings for float32 on a CPU.

torch multiplies with MKL, which seems to leave AVX-512 unused on processors that are not Intel's. oneDNN, which torch
has for convolutions, does not: on a core of an AMD EPYC (Zen 5) it multiplies [3823, 64] by [64, 64] at 240 GFLOP/s,
MKL at 112.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

NARROW = 16
"""Columns below which MKL is faster by the transposed product."""
ROWS = 256
"""oneDNN makes a kernel for every shape, and batches of graphs or texts differ in theirs; multiples of this are few."""
LARGE = 1 << 22
"""Multiplications of a product from which oneDNN's ten microseconds of overhead pay off."""


_ALLOWED = ContextVar("oneDNN", default=True)


@cache
def has_onednn() -> bool:
    """Whether this processor is better served by oneDNN; the same in every process, so that runs can be repeated."""
    return torch.backends.mkldnn.is_available() and "AVX512" in torch.backends.cpu.get_cpu_capability()


@contextmanager
def without_onednn() -> Iterator[None]:
    """Leave all products to torch, whose tools then see them."""
    token = _ALLOWED.set(False)
    try:
        yield
    finally:
        _ALLOWED.reset(token)


def suits_onednn(x: Tensor) -> bool:
    """Whether products of this tensor go to oneDNN."""
    plain = x.dtype == torch.float32 and x.device.type == "cpu"
    return plain and has_onednn() and _ALLOWED.get() and not torch.is_autocast_enabled("cpu")


def matmul_t(x: Tensor, weight: Tensor, bias: Tensor | None = None, relu: bool = False) -> Tensor:
    """The product of x and the transposed weight by oneDNN, [rows, inputs] and [outputs, inputs] -> [rows, outputs].
    The weight may be a transposed view, while x is copied if it is one.
    """
    found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "relu" if relu else "none", [], "")
    return found


def times_t(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The same by whichever library suits."""
    return matmul_t(x, weight, bias) if suits_onednn(x) else F.linear(x, weight, bias)


def padded(rows: int) -> int:
    """So many rows, or the next number of rows that is a multiple of `ROWS`."""
    return -(-rows // ROWS) * ROWS


def grouped_product(rows: Tensor, other: Tensor) -> Tensor:
    """Every member's own product of two matrices: [rows, members, inner] and [members, inner, columns] -> [rows,
    members, columns].

    oneDNN has no batched product for us, but it has one under another name: a grouped convolution of one pixel by one,
    with members as groups and rows as the pixels of an image whose channels come last.
    """
    members, inner, columns = other.shape
    if not suits_onednn(rows) or min(inner, columns) < NARROW:
        return narrow_product(rows.transpose(0, 1), other).transpose(0, 1)
    image = rows.contiguous().view(1, 1, len(rows), members * inner).permute(0, 3, 1, 2)
    one, none = [1, 1], [0, 0]
    if other.is_contiguous():  # what a transposed convolution takes for weights
        weight = other.view(members * inner, columns, 1, 1)
        found: Tensor = torch.ops.mkldnn._convolution_transpose_pointwise(
            image, weight, None, none, none, one, one, members, "none", [], ""
        )
    else:
        weight = other.transpose(1, 2).reshape(members * columns, inner, 1, 1)
        found = torch.mkldnn_convolution(image, weight, None, none, one, one, members)
    return found.permute(0, 2, 3, 1).view(len(rows), members, columns)


def bmm(a: Tensor, b: Tensor) -> Tensor:  # [members, m, k] and [members, k, n] -> [members, m, n]
    """Every member's own product, as `torch.bmm`; large ones member by member. If `a` is a transposed view, the smaller
    `b` is copied in its place.
    """
    _, m, k = a.shape
    if not suits_onednn(a) or m * k * b.shape[2] < LARGE:
        return torch.bmm(a, b)
    if a.is_contiguous():
        return torch.stack([matmul_t(x, y.T) for x, y in zip(a, b, strict=True)])
    return torch.stack([matmul_t(y.T, x).T for x, y in zip(a, b, strict=True)])


def narrow_product(a: Tensor, b: Tensor) -> Tensor:  # [members, m, k] and [members, k, n] -> [members, m, n]
    """The same where n may be few, as in an epoch's last batch: then by the transpose, which MKL computes two to eight
    times as fast.
    """
    if b.shape[2] >= NARROW:
        return bmm(a, b)
    return torch.bmm(b.transpose(1, 2).contiguous(), a.transpose(1, 2)).transpose(1, 2).contiguous()

"""Matrix products by the fastest of the libraries at hand for float32 on a CPU.

torch multiplies with MKL, which seems to leave AVX-512 unused on processors that are not Intel's. Two libraries do not:
OpenBLAS, which NumPy brings, for every member's own small product, and oneDNN, which torch has for convolutions, for
large ones. On a core of an AMD EPYC (Zen 5), of 8 products of [128, 128] matrices, OpenBLAS makes 228 GFLOP/s and MKL
114; of [3823, 64] and [64, 64], oneDNN makes 240 and MKL 112.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

import numpy as np
import torch
from threadpoolctl import threadpool_info, threadpool_limits
from torch import Tensor
from torch.nn import functional as F

ROWS = 256
"""oneDNN makes a kernel for every shape, and batches of graphs or texts differ in theirs; multiples of this are few."""
LARGE = 1 << 22
"""Multiplications of a product from which oneDNN's ten microseconds of overhead pay off."""


_TORCH_ONLY = ContextVar("torch only", default=False)


@cache
def has_faster() -> bool:
    """Whether this processor is better served by other libraries; the same in every process, so that runs can be
    repeated.
    """
    return torch.backends.mkldnn.is_available() and "AVX512" in torch.backends.cpu.get_cpu_capability()


@contextmanager
def torch_only() -> Iterator[None]:
    """Leave all products to torch, whose tools then see them."""
    token = _TORCH_ONLY.set(True)
    try:
        yield
    finally:
        _TORCH_ONLY.reset(token)


def leaves_torch(x: Tensor) -> bool:
    """Whether products of this tensor go to the other libraries."""
    plain = x.dtype == torch.float32 and x.is_cpu
    return plain and has_faster() and not _TORCH_ONLY.get() and not torch.is_autocast_enabled("cpu")


def set_threads(threads: int) -> None:
    """Let every library compute with so many threads."""
    torch.set_num_threads(threads)
    threadpool_limits(threads, "blas")


def blas_kernels() -> str:
    """What NumPy multiplies with: its library, and the processors that this has chosen its kernels for."""
    found = [pool for pool in threadpool_info() if pool["user_api"] == "blas" and "numpy" in pool["filepath"]]
    return ", ".join(f"{pool['internal_api']} for {pool.get('architecture', 'any')}" for pool in found) or "unknown"


def matmul_t(x: Tensor, weight: Tensor, bias: Tensor | None = None, relu: bool = False) -> Tensor:
    """The product of x and the transposed weight by oneDNN, [rows, inputs] and [outputs, inputs] -> [rows, outputs].
    The weight may be a transposed view, while x is copied if it is one.
    """
    found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "relu" if relu else "none", [], "")
    return found


def times_t(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The same by whichever library suits."""
    return matmul_t(x, weight, bias) if leaves_torch(x) else F.linear(x, weight, bias)


def padded(rows: int) -> int:
    """So many rows, or the next number of rows that is a multiple of `ROWS`."""
    return -(-rows // ROWS) * ROWS


def bmm(
    a: Tensor, b: Tensor, out: Tensor | None = None
) -> Tensor:  # [members, m, k], [members, k, n] -> [members, m, n]
    """Every member's own product, where no gradients are asked for. If `a` is a transposed view and large, the smaller
    `b` is copied in its place.
    """
    members, m, k = a.shape
    n = b.shape[2]
    found = a.new_empty(members, m, n) if out is None else out
    if not leaves_torch(a):
        return torch.bmm(a, b, out=found)
    if m * k * n < LARGE:
        with np.errstate(all="ignore"):  # of members that diverge, which is noticed by their loss
            np.matmul(a.detach().numpy(), b.detach().numpy(), out=found.numpy())
        return found
    if a.is_contiguous():
        return torch.stack([matmul_t(x, y.T) for x, y in zip(a, b, strict=True)], out=found)
    return torch.stack([matmul_t(y.T, x).T for x, y in zip(a, b, strict=True)], out=found)

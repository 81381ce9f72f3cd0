"""Matrix products by another library than torch's first, for float32 on a CPU, and the threads of all libraries.

torch multiplies with MKL, which seems to leave AVX-512 unused on processors that are not Intel's. oneDNN, which torch
has for convolutions, does not: of [3823, 64] and [64, 64] it makes 240 GFLOP/s on a core of an AMD EPYC (Zen 5) and MKL
112. Nor does the OpenBLAS that SciPy brings, which multiplies in what is compiled (`ensgap.stack.compiled`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

import scipy.linalg.cython_blas  # noqa: F401 - its OpenBLAS is loaded with this module, so that `set_threads` reaches it
import torch
from threadpoolctl import threadpool_info, threadpool_limits
from torch import Tensor
from torch.nn import functional as F

ROWS = 256
"""oneDNN makes a kernel for every shape, and batches of graphs or texts differ in theirs; multiples of this are few."""

_TORCH_ONLY = ContextVar("torch only", default=False)


@cache
def has_faster() -> bool:
    """Whether this processor is better served by oneDNN; the same in every process, so that runs can be
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


def only_torch() -> bool:
    """Whether that was asked for."""
    return _TORCH_ONLY.get()


def leaves_torch(x: Tensor) -> bool:
    """Whether products of this tensor go to oneDNN."""
    plain = x.dtype == torch.float32 and x.is_cpu
    return plain and has_faster() and not only_torch() and not torch.is_autocast_enabled("cpu")


def set_threads(threads: int) -> None:
    """Let every library compute with so many threads."""
    torch.set_num_threads(threads)
    threadpool_limits(threads, "blas")


def blas_kernels() -> str:
    """What SciPy multiplies with: its library, and the processors that this has chosen its kernels for."""
    found = [pool for pool in threadpool_info() if pool["user_api"] == "blas" and "scipy" in pool["filepath"]]
    return ", ".join(f"{pool['internal_api']} for {pool.get('architecture', 'any')}" for pool in found) or "unknown"


def matmul_t(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The product of x and the transposed weight by oneDNN, [rows, inputs] and [outputs, inputs] -> [rows, outputs].
    The weight may be a transposed view, while x is copied if it is one.
    """
    found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return found


def times_t(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The same by whichever library suits."""
    return matmul_t(x, weight, bias) if leaves_torch(x) else F.linear(x, weight, bias)


def padded(rows: int) -> int:
    """So many rows, or the next number of rows that is a multiple of `ROWS`."""
    return -(-rows // ROWS) * ROWS

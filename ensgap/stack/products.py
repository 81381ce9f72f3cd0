"""Matrix products by the faster of the two libraries that torch brings for float32 on a CPU.

torch multiplies with MKL, which leaves AVX-512 unused on processors that are not Intel's. oneDNN, which torch has for
convolutions, does not: on a core of an AMD EPYC (Zen 5) it multiplies [3823, 64] by [64, 64] at 240 GFLOP/s, MKL at
112.
"""

from functools import cache

import torch
from torch import Tensor


@cache
def has_onednn() -> bool:
    """Whether this processor is better served by oneDNN; the same in every process, so that runs can be repeated."""
    return torch.backends.mkldnn.is_available() and "AVX512" in torch.backends.cpu.get_cpu_capability()


def suits_onednn(x: Tensor) -> bool:
    """Whether products of this tensor go to oneDNN."""
    plain = x.dtype == torch.float32 and x.device.type == "cpu"
    return plain and has_onednn() and not torch.is_autocast_enabled("cpu")


def matmul_t(x: Tensor, weight: Tensor, bias: Tensor | None = None, relu: bool = False) -> Tensor:
    """The product of x and the transposed weight by oneDNN, [rows, inputs] and [outputs, inputs] -> [rows, outputs].
    The weight may be a transposed view, while x is copied if it is one.
    """
    found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "relu" if relu else "none", [], "")
    return found

"""What is compiled: loops over a member's numbers that would be many operations of microseconds, or passes over memory.

Numba compiles a function for the processor it runs on when it is first called, which takes seconds, and keeps it beside
the package or in the user's cache, if one of them can be written to, until the function's own file changes: so what is
compiled calls only what stands in the same file. It runs on one thread, but for the products in it, which are by the
OpenBLAS that SciPy brings.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
import torch
from numba import njit
from torch import Tensor

from ensgap.stack.products import only_torch

Array = np.ndarray[Any, np.dtype[Any]]
Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """The function compiled when it is first called. Sums may be taken in any order, so that they are vectorised;
    numbers that are not finite stay what they are, by which a member that diverged is known.
    """
    kind: Any = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "arcp", "nsz"}}
    try:
        made: Function = njit(function, cache=True, **kind)
    except RuntimeError:  # nowhere to keep it
        made = njit(function, **kind)
    return made


def takes(x: Tensor) -> bool:
    """Whether what is compiled can take this tensor: on a CPU, in one precision, where not torch alone is asked for."""
    single = x.dtype in (torch.float32, torch.float64) and not torch.is_autocast_enabled("cpu")
    return x.is_cpu and single and not only_torch()


def array(tensor: Tensor) -> Array:
    """A tensor's own memory, in row-major order."""
    found: Array = tensor.detach().contiguous().numpy()
    return found


def arrays(tensors: Iterable[Tensor]) -> tuple[Array, ...]:
    """The same of several."""
    return tuple(array(tensor) for tensor in tensors)

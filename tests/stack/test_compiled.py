"""Functions are compiled wherever they run, and take a tensor's own memory."""

import numpy as np
import pytest
import torch

from ensgap.stack.compiled import Array, array, compiled, takes
from ensgap.stack.products import torch_only


def double(x: Array) -> None:
    for i in range(len(x)):
        x[i] *= 2


def test_works_where_nothing_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numba.core.caching.CacheImpl._locator_classes", [])
    x = torch.arange(3.0)
    compiled(double)(array(x))
    assert x.tolist() == [0, 2, 4]


def test_what_is_not_finite_stays_so() -> None:
    def total(x: Array) -> float:
        found = x.dtype.type(0)
        for i in range(len(x)):
            found += x[i]
        return float(found)

    made = compiled(total)
    assert np.isnan(made(np.array([1.0, np.nan, 2.0]))) and made(np.array([1.0, np.inf])) == np.inf


def test_takes_what_lies_on_a_cpu_in_one_precision() -> None:
    assert takes(torch.zeros(2)) and takes(torch.zeros(2, dtype=torch.float64))
    assert not takes(torch.zeros(2, dtype=torch.bfloat16)) and not takes(torch.zeros(2, device="meta"))
    with torch.autocast("cpu", torch.bfloat16):
        assert not takes(torch.zeros(2))
    with torch_only():
        assert not takes(torch.zeros(2))

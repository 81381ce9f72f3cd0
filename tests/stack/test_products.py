"""Products by another library are products, whatever the shape, for float32 on CPUs that have AVX-512 only."""

import pytest
import torch
from threadpoolctl import threadpool_info

from ensgap.stack.products import blas_kernels, has_faster, leaves_torch, matmul_t, set_threads, torch_only

pytestmark = pytest.mark.skipif(not has_faster(), reason="this processor has no AVX-512")


@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(1, 1, 1), (7, 64, 10), (512, 64, 64), (128, 33, 257)])
def test_is_the_product(rows: int, inputs: int, outputs: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(rows, inputs, generator=generator), torch.randn(outputs, inputs, generator=generator)
    bias = torch.randn(outputs, generator=generator)
    wanted = x.double() @ weight.double().T
    torch.testing.assert_close(matmul_t(x, weight).double(), wanted, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(matmul_t(x, weight.T.contiguous().T).double(), wanted, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(matmul_t(x.T.contiguous().T, weight).double(), wanted, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(matmul_t(x, weight, bias).double(), wanted + bias.double(), rtol=1e-4, atol=1e-4)


def test_every_library_has_the_threads_it_was_given() -> None:
    before = torch.get_num_threads()
    set_threads(1)
    counts = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
    assert torch.get_num_threads() == 1 and set(counts) == {1}
    assert any("scipy" in pool["filepath"] for pool in threadpool_info())
    set_threads(before)


def test_names_the_library_of_scipy() -> None:
    assert " for " in blas_kernels()


def test_other_precisions_go_elsewhere() -> None:
    assert leaves_torch(torch.zeros(2, 2))
    assert not leaves_torch(torch.zeros(2, 2, dtype=torch.float64))
    assert not leaves_torch(torch.zeros(2, 2, device="meta"))
    with torch.autocast("cpu", torch.bfloat16):
        assert not leaves_torch(torch.zeros(2, 2))
    with torch_only():
        assert not leaves_torch(torch.zeros(2, 2))

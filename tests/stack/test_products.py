"""Products by oneDNN are products, whatever the shape, and are used for float32 on CPUs that have AVX-512 only."""

import pytest
import torch

from ensgap.stack.products import (
    bmm,
    grouped_product,
    has_onednn,
    matmul_t,
    narrow_product,
    suits_onednn,
    without_onednn,
)

pytestmark = pytest.mark.skipif(not has_onednn(), reason="this processor has no AVX-512")


@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(1, 1, 1), (7, 64, 10), (512, 64, 64), (128, 33, 257)])
def test_is_the_product(rows: int, inputs: int, outputs: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(rows, inputs, generator=generator), torch.randn(outputs, inputs, generator=generator)
    bias = torch.randn(outputs, generator=generator)
    wanted = x.double() @ weight.double().T
    torch.testing.assert_close(matmul_t(x, weight).double(), wanted, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(matmul_t(x, weight.T.contiguous().T).double(), wanted, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(matmul_t(x.T.contiguous().T, weight).double(), wanted, rtol=1e-4, atol=1e-4)
    with_relu = matmul_t(x, weight, bias, relu=True).double()
    torch.testing.assert_close(with_relu, (wanted + bias.double()).relu(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("m", "k", "n"), [(9, 20, 30), (20, 128, 5), (256, 256, 128)])
def test_every_members_own_product(m: int, k: int, n: int, transposed: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(3, m, k, generator=generator), torch.randn(3, k, n, generator=generator)
    if transposed:
        a, b = a.transpose(1, 2).contiguous().transpose(1, 2), b.transpose(1, 2).contiguous().transpose(1, 2)
    wanted = a.double() @ b.double()
    for found in (bmm(a, b), narrow_product(a, b), grouped_product(a.transpose(0, 1), b).transpose(0, 1)):
        torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-4)


def test_other_precisions_go_elsewhere() -> None:
    assert suits_onednn(torch.zeros(2, 2))
    assert not suits_onednn(torch.zeros(2, 2, dtype=torch.float64))
    assert not suits_onednn(torch.zeros(2, 2, device="meta"))
    with torch.autocast("cpu", torch.bfloat16):
        assert not suits_onednn(torch.zeros(2, 2))
    with without_onednn():
        assert not suits_onednn(torch.zeros(2, 2))

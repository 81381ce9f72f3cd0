"""What the compiled step of an MLP is made of, against torch."""

import numpy as np
import pytest
import torch
from torch import nn

from ensgap.networks.mlp_kernels import SMALL, multiply, normalize, normalize_backward
from ensgap.stack.compiled import Array, array


@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 7, 3), (128, 128, 128), (200, 64, 100), (40, 2000, 1000)])
def test_products_in_blocks_are_products(shape: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(0)
    m, k, n = shape
    a, b, out = rng.standard_normal((m, k)), rng.standard_normal((k, n)), np.full((m, n), np.nan)
    multiply(a, b, out)
    np.testing.assert_allclose(out, a @ b, rtol=1e-9, atol=1e-9)
    assert (SMALL // (k * n) < 16) == (shape == (40, 2000, 1000))  # both ways are tried


def _norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> tuple[Array, Array, Array]:
    y, mean, rstd = (torch.empty_like(t) for t in (x, weight, weight))
    normalize(array(x), array(weight), array(bias), 1e-5, array(y), array(mean), array(rstd))
    return array(y), array(mean), array(rstd)


def test_batch_norm_and_relu_in_float32_far_from_zero() -> None:
    x = torch.randn(5, 64) * 0.1 + 100
    y, _, _ = _norm(x, torch.ones(5), torch.zeros(5))
    exact = nn.BatchNorm1d(5).double()(x.double().T).relu().T
    torch.testing.assert_close(torch.tensor(y).double(), exact, atol=2e-3, rtol=2e-3)


def test_batch_norm_backward_is_autograds() -> None:
    torch.manual_seed(0)
    x, upstream = torch.randn(5, 30, dtype=torch.float64) + 3, torch.randn(5, 30, dtype=torch.float64)
    norm = nn.BatchNorm1d(5).double()
    with torch.no_grad():
        norm.weight.normal_()
        norm.bias.normal_()
    y, mean, rstd = _norm(x, norm.weight, norm.bias)
    grad, grad_scale, grad_shift = upstream.clone(), torch.empty(5).double(), torch.empty(5).double()
    normalize_backward(array(grad), array(x), y, array(norm.weight), mean, rstd, array(grad_scale), array(grad_shift))
    own = x.clone().requires_grad_()
    wanted = torch.autograd.grad(norm(own.T).relu().T, [own, norm.weight, norm.bias], upstream)
    torch.testing.assert_close([grad, grad_scale, grad_shift], list(wanted))

"""BatchEnsemble layers against one ordinary layer per member, with explicit weights W ∘ (s rᵀ)."""

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from ensgap.errors import UserError
from ensgap.networks.mlp import batch_ensemble_mlp
from ensgap.stack.batch_ensemble import (
    BatchEnsembleConv2d,
    BatchEnsembleLayer,
    BatchEnsembleLinear,
    FastInit,
    draw_fast_weights,
    with_biases,
)

ENSEMBLES, MEMBERS = 2, 3
STACK = ENSEMBLES * MEMBERS


def generators(count: int) -> list[Generator]:
    return [Generator().manual_seed(m) for m in range(count)]


def made(layer: BatchEnsembleLayer, fast: str) -> BatchEnsembleLayer:
    """With random slow weights and biases."""
    torch.manual_seed(0)
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    for vector in (layer.r, layer.s):
        drawn = torch.randn_like(vector)
        vector.data.copy_(torch.ones_like(drawn) if fast == "ones" else drawn.sign() if fast == "sign" else drawn)
    return layer.double()


def check(layer: BatchEnsembleLayer, x: Tensor, y: Tensor, members: list[Tensor], weights: list[Tensor]) -> None:
    """The layer's output and gradients, given what ordinary layers put out for every member with weights of its own."""
    upstream = torch.randn_like(y)
    slow, r, s, bias, inputs = torch.autograd.grad(y, [layer.weight, layer.r, layer.s, layer.bias, x], upstream)
    *explicit, own_bias, own_inputs = torch.autograd.grad(torch.stack(members), [*weights, layer.bias, x], upstream)
    torch.testing.assert_close(y, torch.stack(members))
    torch.testing.assert_close(inputs, own_inputs)
    torch.testing.assert_close(bias, own_bias)
    expected = torch.zeros_like(slow)
    for m, gradient in enumerate(explicit):
        ensemble, shape = m // MEMBERS, (*gradient.shape[:2], -1)
        g, w = gradient.reshape(shape), layer.weight[ensemble].reshape(shape)  # [outputs, inputs, kernel]
        expected[ensemble] += torch.einsum("oik,o,i->oik", g, layer.s[m], layer.r[m]).view_as(gradient)
        torch.testing.assert_close(r[m], torch.einsum("oik,oik,o->i", g, w, layer.s[m]))
        torch.testing.assert_close(s[m], torch.einsum("oik,oik,i->o", g, w, layer.r[m]))
    torch.testing.assert_close(slow, expected)


@pytest.mark.parametrize("fast", ["ones", "sign", "gaussian"])
@pytest.mark.parametrize("batch", [2, 50])  # the fast weights scale activations, and weights
def test_linear(batch: int, fast: str) -> None:
    layer = made(BatchEnsembleLinear(ENSEMBLES, MEMBERS, 7, 5), fast)
    x = torch.randn(STACK, 7, batch, dtype=torch.float64, requires_grad=True)
    weights = [(layer.weight[m // MEMBERS] * torch.outer(layer.s[m], layer.r[m])).detach() for m in range(STACK)]
    weights = [w.requires_grad_() for w in weights]
    ordinary = [F.linear(x[m].T, weights[m], layer.bias[m]).T for m in range(STACK)]
    check(layer, x, layer(x), ordinary, weights)


@pytest.mark.parametrize("fast", ["ones", "sign", "gaussian"])
@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (1, 2)])
def test_convolution(kernel: int, stride: int, fast: str) -> None:
    layer = made(BatchEnsembleConv2d(ENSEMBLES, MEMBERS, 4, 5, kernel, stride), fast)
    x = torch.randn(STACK, 6, 4, 8, 8, dtype=torch.float64, requires_grad=True)
    y = layer(x.transpose(0, 1).flatten(1, 2)).unflatten(1, (STACK, 5)).transpose(0, 1)
    product = [torch.outer(layer.s[m], layer.r[m])[:, :, None, None] for m in range(STACK)]
    weights = [(layer.weight[m // MEMBERS] * product[m]).detach().requires_grad_() for m in range(STACK)]
    ordinary = [F.conv2d(x[m], weights[m], layer.bias[m], stride, kernel // 2) for m in range(STACK)]
    check(layer, x, y, ordinary, weights)


@pytest.mark.parametrize(("init", "deviation"), [("gaussian_0.1", 0.1), ("gaussian_0.5", 0.5)])
def test_gaussian_fast_weights(init: FastInit, deviation: float) -> None:
    network = batch_ensemble_mlp(1, 3, 4000, (), 4000)
    draw_fast_weights(network, init, generators(3))
    fast = dict(network.named_parameters())
    for side in ("r", "s"):
        drawn = fast[f"layers.0.{side}"]
        torch.testing.assert_close(drawn.mean(1), torch.ones(3), atol=5 * deviation / 4000**0.5, rtol=0)
        torch.testing.assert_close(drawn.std(1), torch.full((3,), deviation), atol=0, rtol=0.06)
    correlation = torch.corrcoef(torch.cat([fast["layers.0.r"], fast["layers.0.s"]])) - torch.eye(6)
    assert correlation.abs().max() < 0.1


def test_signs_are_exactly_one_and_every_members_own() -> None:
    network = batch_ensemble_mlp(1, 3, 4000, (), 4000)
    draw_fast_weights(network, "sign", generators(3))
    fast = dict(network.named_parameters())
    drawn = torch.cat([fast["layers.0.r"], fast["layers.0.s"]])
    assert set(drawn.unique().tolist()) == {-1.0, 1.0}
    assert (torch.corrcoef(drawn) - torch.eye(6)).abs().max() < 0.1
    assert drawn.mean(1).abs().max() < 0.1


def test_a_members_fast_weights_do_not_depend_on_its_neighbours() -> None:
    small, large = batch_ensemble_mlp(1, 2, 6, (5,), 4), batch_ensemble_mlp(2, 4, 6, (5,), 4)
    draw_fast_weights(large, "gaussian_0.5", generators(8))
    draw_fast_weights(small, "gaussian_0.5", generators(8)[2:4])
    for name, value in small.named_parameters():
        if name.endswith((".r", ".s")):
            assert torch.equal(value, dict(large.named_parameters())[name][2:4])


def test_an_unknown_init_is_refused() -> None:
    with pytest.raises(UserError, match=r"gaussian_0.1, gaussian_0.5, sign, not as 'zero'"):
        draw_fast_weights(batch_ensemble_mlp(1, 2, 6, (), 4), "zero", generators(2))  # type: ignore[arg-type]


def test_new_biases_are_zero_and_old_ones_stay() -> None:
    first = nn.Linear(3, 2)
    old = first.bias.detach().clone()
    network = nn.Sequential(first, nn.Linear(2, 4, bias=False), nn.Conv2d(1, 5, 3, bias=False))
    state = with_biases(network).state_dict()
    assert torch.equal(state["0.bias"], old)
    assert torch.equal(state["1.bias"], torch.zeros(4))
    assert torch.equal(state["2.bias"], torch.zeros(5))

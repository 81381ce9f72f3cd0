"""Stacked layers against ordinary ones."""

import pytest
import torch
from torch import nn

from ensgap.networks.mlp import MLP
from ensgap.seeds import INIT, member_generators
from ensgap.stack.layers import StackedBatchNorm, StackedLinear


@pytest.mark.parametrize("relu", [False, True])
def test_batch_norm_equals_one_batch_norm_per_member(relu: bool) -> None:
    torch.manual_seed(0)
    members, features, batch = 3, 5, 16
    stack = StackedBatchNorm(members, features, relu=relu).double()
    with torch.no_grad():
        stack.weight.normal_()
        stack.bias.normal_()
    plain = [nn.BatchNorm1d(features).double() for _ in range(members)]
    for m, layer in enumerate(plain):
        layer.load_state_dict({name: v[m] for name, v in stack.state_dict().items()}, strict=False)
    for training in (True, True, False):
        stack.train(training)
        x = (3 * torch.randn(members, features, batch, dtype=torch.float64) + 7).requires_grad_()
        y = stack(x)
        upstream = torch.randn_like(y)
        grads = torch.autograd.grad(y, [x, stack.weight, stack.bias], upstream)
        for m, layer in enumerate(plain):
            layer.train(training)
            own = x[m].detach().clone().requires_grad_()
            z = layer(own.T)
            z = torch.relu(z) if relu else z
            torch.testing.assert_close(y[m], z.T)
            expected = torch.autograd.grad(z, [own, layer.weight, layer.bias], upstream[m].T)
            for ours, theirs in zip(grads, expected, strict=True):
                torch.testing.assert_close(ours[m], theirs)
            torch.testing.assert_close(stack.running_mean[m], layer.running_mean)
            torch.testing.assert_close(stack.running_var[m], layer.running_var)


def test_batch_norm_keeps_its_precision_far_from_zero() -> None:
    x = torch.randn(2, 3, 64) * 0.1 + 100
    ours = StackedBatchNorm(2, 3)(x)
    exact = nn.BatchNorm1d(6).double()(x.double().flatten(0, 1).T).T.view(2, 3, 64)
    torch.testing.assert_close(ours.double(), exact, atol=2e-3, rtol=2e-3)


def test_one_point_has_no_variance() -> None:
    with pytest.raises(ValueError, match="more than one point"):
        StackedBatchNorm(2, 3)(torch.randn(2, 3, 1))


def test_linear_equals_one_linear_per_member_and_starts_like_it() -> None:
    stack = StackedLinear(4, 50, 30)
    members = [MLP(50, (), 30, g) for g in member_generators(0, (0,), 4, INIT)]
    stack.load_state_dict({n: torch.stack([m.layers[0].state_dict()[n] for m in members]) for n in ("weight", "bias")})
    x = torch.randn(4, 50, 7)
    y = stack(x)
    for m in range(4):
        torch.testing.assert_close(y[m].T, nn.functional.linear(x[m].T, stack.weight[m], stack.bias[m]))  # type: ignore[index]
    bound = 50**-0.5
    assert stack.weight.abs().max() <= bound
    assert stack.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)


def test_a_members_initial_weights_do_not_depend_on_its_neighbours() -> None:
    small = [MLP(6, (5,), 4, g) for g in member_generators(5, (2,), 2, INIT)]
    large = [MLP(6, (5,), 4, g) for g in member_generators(5, (0, 1, 2), 8, INIT)]
    for a, b in zip(small[1].parameters(), large[2 * 8 + 1].parameters(), strict=True):
        assert torch.equal(a, b)

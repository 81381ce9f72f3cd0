"""The compiled gradients of a stacked MLP against autograd's."""

import copy

import pytest
import torch
from torch.nn import functional as F

from ensgap.gaussian import LEAST_VARIANCE
from ensgap.networks.mlp import StackedMLP


@pytest.mark.parametrize("batch", [2, 15, 40])
@pytest.mark.parametrize("hidden", [(), (8,), (8, 7), (5, 9, 8)])
def test_they_are_autograds(hidden: tuple[int, ...], batch: int) -> None:
    torch.manual_seed(0)
    members, size = 3, 20
    ours = StackedMLP(members, 6, hidden, 4).double()
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.normal_()
    theirs = copy.deepcopy(ours)
    for _ in range(2):
        inputs = 3 * torch.randn(members, batch, 6, dtype=torch.float64) + 7
        labels = torch.randint(4, (members, 2 * batch))[:, ::2]  # not contiguous, as a part of an epoch's labels is not
        nll, gradients = ours.gradients(inputs, labels, size)
        losses = F.cross_entropy(theirs(inputs).transpose(1, 2), labels, reduction="none").sum(1)
        expected = torch.autograd.grad(losses.sum() / size, list(theirs.parameters()))
        torch.testing.assert_close(nll, losses.detach())
        torch.testing.assert_close(gradients, list(expected))
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())


@pytest.mark.parametrize("members", [2, 5])
@pytest.mark.parametrize("hidden", [(32, 24), (128, 128), (256, 512)])
@pytest.mark.parametrize("batch", [5, 128])
def test_in_float32_they_are_those_in_float64(members: int, hidden: tuple[int, ...], batch: int) -> None:
    """Products have other kernels in float32, which depend on sizes."""
    torch.manual_seed(0)
    single = StackedMLP(members, 20, hidden, 4)
    with torch.no_grad():
        for parameter in single.parameters():
            parameter.normal_(std=0.1)
    double = copy.deepcopy(single).double()
    inputs, labels = torch.randn(members, batch, 20), torch.randint(4, (members, batch))
    nll, gradients = single.gradients(inputs, labels, batch)
    wanted_nll, wanted = double.gradients(inputs.double(), labels, batch)
    torch.testing.assert_close(nll.double(), wanted_nll, rtol=1e-4, atol=1e-4)
    for gradient, expected in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(gradient.double(), expected, rtol=1e-3, atol=2e-5)
    torch.testing.assert_close(single.double().state_dict(), double.state_dict(), rtol=1e-4, atol=1e-5)


def test_one_point_has_no_variance() -> None:
    network = StackedMLP(2, 6, (8,), 4)
    with pytest.raises(ValueError, match="more than one point"):
        network.gradients(torch.randn(2, 1, 6), torch.zeros(2, 1, dtype=torch.int64), 1)


def test_regressions_are_autograds_too() -> None:
    torch.manual_seed(0)
    network = StackedMLP(3, 6, (8, 7), 2).double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_()
    inputs, targets = torch.randn(3, 20, 6, dtype=torch.float64), 3 * torch.randn(3, 20, dtype=torch.float64)
    nll, gradients = network.gradients(inputs, targets, 20)
    mean, raw = network(inputs).unbind(2)
    variance = F.softplus(raw) + LEAST_VARIANCE
    losses = -torch.distributions.Normal(mean, variance.sqrt()).log_prob(targets).sum(1)
    torch.testing.assert_close(nll, losses.detach())
    torch.testing.assert_close(gradients, list(torch.autograd.grad(losses.sum() / 20, list(network.parameters()))))


def test_a_member_that_diverged_is_known_by_its_loss_and_leaves_the_others_alone() -> None:
    torch.manual_seed(0)
    network, alone = StackedMLP(2, 6, (8,), 4), StackedMLP(1, 6, (8,), 4)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_()
        next(network.parameters())[0, 0, 0] = torch.nan
    alone.load_state_dict({name: value[1:] for name, value in network.state_dict().items()})
    inputs, labels = torch.randn(2, 10, 6), torch.randint(4, (2, 10))
    nll, gradients = network.gradients(inputs, labels, 10)
    assert nll.isnan().tolist() == [True, False]
    own_nll, own = alone.gradients(inputs[1:], labels[1:], 10)
    assert torch.equal(nll[1:], own_nll) and all(map(torch.equal, (g[1:] for g in gradients), own))

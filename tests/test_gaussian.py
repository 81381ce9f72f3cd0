"""Gaussian members: the written-out gradient against autograd, mixtures against torch.distributions and scipy."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from torch import Tensor
from torch.distributions import Categorical, MixtureSameFamily, Normal

from ensgap import gaussian, metrics
from ensgap.calibrate import fit
from ensgap.errors import UserError
from ensgap.losses import METRICS
from ensgap.networks.mlp import MLP, StackedMLP
from ensgap.points import TensorPoints
from ensgap.predictions import Predictions
from ensgap.seeds import INIT, ORDER, member_generators
from ensgap.stack import BatchedStack, LoopStack, OptimizerConfig
from ensgap.stack.stack import nll_and_gradient
from ensgap.train import TrainConfig, Training


def random_predictions(seed: int, shape: tuple[int, int, int] = (2, 4, 60), spread: float = 1.0) -> Predictions:
    g = torch.Generator().manual_seed(seed)
    ensembles, _, points = shape
    mean = 10 + spread * torch.randn(shape, generator=g)
    variance = torch.rand(shape, generator=g) + 0.05
    targets = 10 + spread * torch.randn(ensembles, points, generator=g)
    held = torch.ones(shape, dtype=torch.bool)
    index = torch.arange(points).repeat(ensembles, 1)
    return Predictions(torch.stack([mean, variance], -1), targets, held, index)


def test_the_written_out_gradient_is_autograds() -> None:
    outputs = (3 * torch.randn(3, 5, 2, dtype=torch.float64)).requires_grad_()
    targets = torch.randn(3, 5, dtype=torch.float64)
    nll, gradient = gaussian.nll_and_gradient(outputs, targets)
    mean, raw = outputs.unbind(2)
    std = (torch.nn.functional.softplus(raw) + gaussian.LEAST_VARIANCE).sqrt()
    losses = -Normal(mean, std).log_prob(targets).sum(1)
    torch.testing.assert_close(nll, losses.detach())
    (expected,) = torch.autograd.grad(losses.sum(), outputs)
    torch.testing.assert_close(gradient, expected)


def test_the_kind_of_labels_decides_the_loss() -> None:
    outputs = torch.randn(1, 4, 2)
    of_targets = nll_and_gradient(outputs, torch.ones(1, 4))
    of_classes = nll_and_gradient(outputs, torch.ones(1, 4, dtype=torch.int64))
    torch.testing.assert_close(of_targets, gaussian.nll_and_gradient(outputs, torch.ones(1, 4)))
    assert not torch.allclose(of_targets[0], of_classes[0])


def test_mixture_figures_against_torch_distributions_and_scipy() -> None:
    p = random_predictions(0)
    figures = metrics.evaluate(p)
    mean, variance = p.logits.double().unbind(-1)
    for e in range(2):
        y = p.labels[e].double()
        parts = Normal(mean[e].T, variance[e].T.sqrt())  # [points, members]
        mixture = MixtureSameFamily(Categorical(torch.ones(60, 4, dtype=torch.float64)), parts)
        assert figures["ensemble_nll"][e].item() == pytest.approx(-mixture.log_prob(y).mean().item(), rel=1e-9)
        assert figures["avg_member_nll"][e].item() == pytest.approx(-parts.log_prob(y.unsqueeze(1)).mean().item())
        assert figures["ensemble_rmse"][e].item() == pytest.approx(((mixture.mean - y) ** 2).mean().sqrt().item())
        below = mixture.cdf(y)
        inside = [((below - 0.5).abs() <= level / 2).double().mean() - level for level in gaussian.LEVELS]
        assert figures["ensemble_coverage"][e].item() == pytest.approx(float(torch.stack(inside).abs().mean()))
        matched = float(np.mean(norm.entropy(scale=mixture.variance.sqrt().numpy())))
        assert figures["ensemble_entropy"][e].item() == pytest.approx(matched)


def test_a_member_that_says_the_truth_has_no_coverage_error() -> None:
    g = torch.Generator().manual_seed(0)
    truth = torch.stack([torch.zeros(1, 1, 20000), torch.full((1, 1, 20000), 4.0)], -1).double()
    targets = 2 * torch.randn(1, 20000, generator=g, dtype=torch.float64)
    assert gaussian.mixture_figures(truth, targets)["coverage"].item() < 0.01
    wider = truth * torch.tensor([1.0, 9.0])
    assert gaussian.mixture_figures(wider, targets)["coverage"].item() > 0.2


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.01, 300.0))
def test_jensen_ambiguity_and_diversity_are_never_negative(seed: int, spread: float) -> None:
    figures = metrics.evaluate(random_predictions(seed, (2, 3, 20), spread))
    assert (figures["ambiguity"] >= -1e-9).all()
    assert (figures["diversity"] >= -1e-9).all()


def test_size_curves_end_at_the_average_member_and_the_ensemble() -> None:
    p = random_predictions(1, (2, 5, 40))
    figures, curves = metrics.evaluate(p), metrics.size_curves(p)
    for metric in METRICS["regression"]:
        assert curves[metric].shape == (5, 2)
        torch.testing.assert_close(curves[metric][0], figures[f"avg_member_{metric}"])
        torch.testing.assert_close(curves[metric][-1], figures[f"ensemble_{metric}"])
    pairs = [[0, 1], [1, 2], [2, 3], [3, 4], [4, 0]]
    by_hand = [gaussian.mixture_figures(p.logits[:1, pair].double(), p.labels[:1].double())["nll"] for pair in pairs]
    torch.testing.assert_close(curves["nll"][1, :1], torch.stack(by_hand).mean(0))


def test_temperatures_of_a_regression_are_refused() -> None:
    with pytest.raises(UserError, match="logits of classes"):
        fit(random_predictions(0), "joint")


POINTS, MEMBERS = 80, 3
CPU = torch.device("cpu")


def line(units: float) -> TensorPoints:
    g = torch.Generator().manual_seed(3)
    x = torch.randn(POINTS, 4, generator=g, dtype=torch.float64)
    y = x[:, 0] - 2 * x[:, 1] + 0.3 * torch.randn(POINTS, generator=g, dtype=torch.float64)
    return TensorPoints(x, units * (y + 5))


def trained(points: TensorPoints, batched: bool) -> tuple[Training, float]:
    networks = [MLP(4, (16,), 2, g).double() for g in member_generators(1, (0,), MEMBERS, INIT)]
    optimizer = OptimizerConfig("sgd", [0.02] * MEMBERS, [1e-3] * MEMBERS)
    stack = (
        BatchedStack(StackedMLP(MEMBERS, 4, (16,), 2), networks, optimizer, CPU)
        if batched
        else LoopStack(networks, optimizer, CPU)
    )
    rows = torch.stack([torch.arange(POINTS)[m::2][:30] for m in (0, 1, 0)])
    config = TrainConfig(lr=0.02, epochs=30, batch_size=10)
    training = Training(stack, points, rows, config, member_generators(1, (0,), MEMBERS, ORDER))
    *_, last = training.epochs()
    return training, float(last.train_nll.mean())


def everywhere(training: Training, points: TensorPoints) -> Tensor:
    return training.predict(points, torch.arange(POINTS).expand(MEMBERS, -1))


def test_the_stack_equals_the_loop_and_learns() -> None:
    points = line(1.0)
    (batched, nll), (loop, _) = trained(points, True), trained(points, False)
    torch.testing.assert_close(everywhere(batched, points), everywhere(loop, points))
    figures = gaussian.mixture_figures(everywhere(batched, points).unsqueeze(0), points.labels.unsqueeze(0))
    assert figures["rmse"].item() < 0.5 * points.labels.std().item()
    assert nll < 0.5 * (gaussian.LOG_2PI + 1) + points.labels.std().log().item()  # better than one Gaussian for all


def test_units_of_the_target_change_units_of_the_figures_and_nothing_else() -> None:
    (one, nll_one), (hundred, nll_hundred) = (trained(line(units), True) for units in (1.0, 100.0))
    members, larger = everywhere(one, line(1.0)), everywhere(hundred, line(100.0))
    torch.testing.assert_close(larger, members * torch.tensor([100.0, 100.0**2]).double())
    assert nll_hundred == pytest.approx(nll_one + math.log(100))

"""Metrics against independent implementations, and the inequalities they must obey."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import entropy as scipy_entropy
from sklearn.metrics import brier_score_loss, log_loss
from torchmetrics.functional.classification import multiclass_calibration_error

from ensgap import metrics
from ensgap.errors import UserError
from ensgap.losses import METRICS
from ensgap.predictions import Predictions


def random_predictions(seed: int, shape: tuple[int, int, int, int] = (2, 4, 50, 5), spread: float = 3.0) -> Predictions:
    g = torch.Generator().manual_seed(seed)
    ensembles, members, points, classes = shape
    return Predictions(
        logits=spread * torch.randn(shape, generator=g),
        labels=torch.randint(classes, (ensembles, points), generator=g),
        held=torch.ones(ensembles, members, points, dtype=torch.bool),
        index=torch.arange(points).repeat(ensembles, 1),
    )


def test_nll_error_entropy_against_scikit_learn_and_scipy() -> None:
    p = random_predictions(0)
    figures = metrics.evaluate(p)
    probs = p.logits.double().softmax(-1)
    for e in range(2):
        mean, y = probs[e].mean(0).numpy(), p.labels[e].numpy()
        assert figures["ensemble_nll"][e] == pytest.approx(log_loss(y, mean, labels=range(5)), rel=1e-9)
        assert figures["ensemble_error"][e] == pytest.approx(float((mean.argmax(1) != y).mean()))
        assert figures["ensemble_entropy"][e] == pytest.approx(float(np.mean(scipy_entropy(mean, axis=1))), rel=1e-9)
        members = [log_loss(y, member.numpy(), labels=range(5)) for member in probs[e]]
        assert figures["avg_member_nll"][e] == pytest.approx(np.mean(members), rel=1e-9)


@pytest.mark.parametrize("spread", [0.3, 3.0, 30.0])
def test_ece_against_torchmetrics(spread: float) -> None:
    p = random_predictions(1, (3, 2, 400, 4), spread)
    log_probs = p.logits.double().log_softmax(-1)[:, 0]
    ours = metrics.ece(log_probs, p.labels)
    for e in range(3):
        probs = log_probs[e].exp()
        theirs = multiclass_calibration_error(probs, p.labels[e], num_classes=4, n_bins=15, norm="l1")
        assert ours[e].item() == pytest.approx(float(theirs), abs=1e-6)


def test_ece_bins_are_closed_on_the_right() -> None:
    # confidence exactly 3/15 belongs to the bin that ends there, 4/15 to the next: the gaps of the two add up
    probs = torch.full((2, 10), 0.0, dtype=torch.float64)
    probs[0, 0], probs[0, 1:] = 3 / 15, (1 - 3 / 15) / 9
    probs[1, 0], probs[1, 1:] = 4 / 15, (1 - 4 / 15) / 9
    labels = torch.tensor([0, 1])
    assert metrics.ece(probs.log(), labels).item() == pytest.approx((1 - 3 / 15 + 4 / 15) / 2)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.01, 200.0))
def test_jensen_ambiguity_and_diversity_are_never_negative(seed: int, spread: float) -> None:
    figures = metrics.evaluate(random_predictions(seed, (2, 3, 20, 4), spread))
    assert (figures["ambiguity"] >= -1e-12).all()
    assert (figures["diversity"] >= -1e-9).all()
    assert (figures["brier_ambiguity"] >= -1e-12).all()
    assert all(torch.isfinite(values).all() for values in figures.values())


def test_brier_and_its_exact_decomposition() -> None:
    p = random_predictions(2, (1, 4, 50, 2))
    figures, probs, y = metrics.evaluate(p), p.logits[0].double().softmax(-1), p.labels[0]
    ours = figures["ensemble_brier"].item() / 2  # scikit-learn counts one of two classes
    assert ours == pytest.approx(brier_score_loss(y.numpy(), probs.mean(0)[:, 1].numpy()), rel=1e-9)
    spread = (probs - probs.mean(0)).square().sum(-1).mean()  # what the members' variance takes off
    assert figures["brier_ambiguity"].item() == pytest.approx(spread.item(), rel=1e-9)


def test_size_curve_ends_are_the_average_member_and_the_ensemble() -> None:
    p = random_predictions(3, (2, 5, 60, 4))
    figures, curves = metrics.evaluate(p), metrics.size_curves(p)
    for metric in METRICS["classification"]:
        assert curves[metric].shape == (5, 2)
        torch.testing.assert_close(curves[metric][0], figures[f"avg_member_{metric}"])
        torch.testing.assert_close(curves[metric][-1], figures[f"ensemble_{metric}"])
    assert (curves["nll"].diff(dim=0) <= 1e-9).all()  # more members never hurt on average


def test_size_curve_averages_over_every_cyclic_subset() -> None:
    p = random_predictions(4, (1, 4, 30, 3))
    probs = p.logits[0].double().softmax(-1)
    subsets = [[0, 1], [1, 2], [2, 3], [3, 0]]
    by_hand = np.mean([log_loss(p.labels[0].numpy(), probs[s].mean(0).numpy(), labels=range(3)) for s in subsets])
    assert metrics.size_curves(p)["nll"][1, 0].item() == pytest.approx(by_hand, rel=1e-9)


def cyclic_predictions(order: int) -> Predictions:
    p = random_predictions(5, (2, 4, 40, 3))
    chunk = torch.arange(40) // 10
    held = ((chunk - torch.arange(4).unsqueeze(1)) % 4) < order
    return Predictions(p.logits, p.labels, held.expand(2, -1, -1), p.index)


def test_joint_metrics_average_just_the_members_that_hold_a_point_out() -> None:
    p = cyclic_predictions(2)
    figures = metrics.evaluate(p)
    probs = p.logits[0].double().softmax(-1)
    total = 0.0
    for point in range(40):
        holders = p.held[0, :, point].nonzero().squeeze(1)
        assert len(holders) == 2
        total -= math.log(probs[holders, point, p.labels[0, point]].mean())
    assert figures["ensemble_nll"][0].item() == pytest.approx(total / 40, rel=1e-9)
    own = [log_loss(p.labels[0, h].numpy(), probs[m, h].numpy(), labels=range(3)) for m, h in enumerate(p.held[0])]
    assert figures["avg_member_nll"][0].item() == pytest.approx(np.mean(own), rel=1e-9)
    assert (figures["ambiguity"] >= 0).all()


def test_order_1_has_no_joint_metric() -> None:
    p = cyclic_predictions(1)
    assert "ensemble_nll" not in metrics.evaluate(p)
    with pytest.raises(UserError, match="no joint metric"):
        metrics.size_curves(p)

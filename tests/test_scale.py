"""The joint scale of a regression: known answers, and never worse where it was fitted."""

import pytest
import torch

from ensgap import metrics
from ensgap.errors import UserError
from ensgap.predictions import Predictions
from ensgap.scale import apply_scale, fit_scale
from tests.test_gaussian import random_predictions


def test_equal_members_have_the_closed_form() -> None:
    p = random_predictions(0, (3, 1, 200))
    twins = Predictions(p.logits.expand(-1, 2, -1, -1), p.labels, p.held.expand(-1, 2, -1), p.index)
    mean, variance = p.logits[:, 0].double().unbind(-1)
    expected = ((p.labels.double() - mean).square() / variance).mean(-1).sqrt()
    torch.testing.assert_close(fit_scale(twins, bound=100.0), expected, rtol=1e-4, atol=0)


def test_it_is_never_worse_where_it_was_fitted_and_leaves_means_alone() -> None:
    p = random_predictions(1)
    scale = fit_scale(p)
    before, after = metrics.evaluate(p), metrics.evaluate(apply_scale(p, scale))
    assert (after["ensemble_nll"] < before["ensemble_nll"]).all()
    torch.testing.assert_close(after["ensemble_rmse"], before["ensemble_rmse"])
    for factor in (0.95, 1.05):
        assert (metrics.evaluate(apply_scale(p, factor * scale))["ensemble_nll"] > after["ensemble_nll"]).all()


def test_a_scale_stays_within_its_bounds() -> None:
    p = random_predictions(2)
    far = Predictions(p.logits, p.labels + 1000, p.held, p.index)
    assert fit_scale(far).tolist() == pytest.approx([4.0, 4.0], rel=1e-3)


def test_classes_are_refused() -> None:
    p = random_predictions(0)
    with pytest.raises(UserError, match="classes take a temperature"):
        fit_scale(Predictions(p.logits, p.labels.long(), p.held, p.index))

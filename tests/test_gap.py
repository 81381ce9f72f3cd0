"""Selection and gap on constructed figures with known answers."""

import math

import numpy as np
import pytest

from ensgap.errors import UserError
from ensgap.gap import Estimate, not_worse_than_best, optimality_gap, select


def test_selection_minimises_each_objective() -> None:
    member = [np.array([3.0, 3.1]), np.array([1.0, 1.1]), np.array([2.0, 2.1])]
    ensemble = [np.array([0.5, 0.4]), np.array([0.7, 0.6]), np.array([0.9, 0.8])]
    chosen = select(member, ensemble, [False] * 3)
    assert (chosen.ind.trial, chosen.ens.trial) == (1, 0)
    assert chosen.share_both == chosen.ind.share == chosen.ens.share == 1.0
    assert chosen.ind.votes == (0.0, 1.0, 0.0)


def test_a_diverged_trial_is_never_selected() -> None:
    nothing, best = np.empty(0), np.array([0.1, 0.1])
    worse = np.array([0.5, 0.5])
    assert select([nothing, worse, best], [nothing, worse, best], [True, False, True]).ens.trial == 1
    with pytest.raises(UserError, match="Every trial diverged"):
        select([nothing], [nothing], [True])


def test_resampling_shows_a_tie_as_a_tie() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=20), rng.normal(size=20)
    b += a.mean() - b.mean() + 1e-3
    share = select([a, b], [a, b], [False, False]).ind.share
    assert 0.4 < share < 0.6


def test_one_replicate_says_nothing_about_stability() -> None:
    one = [np.array([1.0]), np.array([2.0])]
    assert math.isnan(select(one, one, [False, False]).share_both)


def test_gap_is_paired_by_seed() -> None:
    level = np.array([1.0, 5.0, 9.0, 2.0])  # seeds differ wildly, the difference hardly at all
    at_ind, at_ens = {"nll": level + np.array([0.1, 0.2, 0.3, 0.2])}, {"nll": level}
    gap = optimality_gap(at_ind, at_ens)["nll"]
    assert gap.mean == pytest.approx(0.2)
    assert gap.sem == pytest.approx(np.std([0.1, 0.2, 0.3, 0.2], ddof=1) / 2)
    assert gap.low == pytest.approx(0.2 - 3.182446 * gap.sem, abs=1e-6)  # t with 3 degrees of freedom
    assert gap.verdict == "positive"
    with pytest.raises(ValueError, match="paired by seed"):
        optimality_gap(at_ind, {"nll": level[:2]})


def test_same_setting_has_gap_zero() -> None:
    gap = optimality_gap({"nll": np.array([1.0, 2.0])}, {"nll": np.array([1.0, 2.0])})["nll"]
    assert (gap.mean, gap.sem, gap.low, gap.high, gap.verdict) == (0, 0, 0, 0, "zero")


def test_bold_is_within_196_sem_of_the_best() -> None:
    estimates = [Estimate(1.0, 0.1, 0, 0), Estimate(1.19, 5.0, 0, 0), Estimate(1.21, 0.0, 0, 0)]
    assert not_worse_than_best(estimates) == [True, True, False]

"""The rule that stops a trial, on made curves: only when both objectives are lost for sure."""

import numpy as np
import pytest

from ensgap.gap import Array
from ensgap.pruning import LEAST_FINISHED, Curve, is_beaten

EPOCHS = (10, 20, 30, 40)
NOISE = 0.002 * np.array([[1.0, -1.0, 0.5, -0.5]])  # of four replicates


def curve(member: list[float], ensemble: list[float] | None = None, noise: Array = NOISE) -> Curve:
    """A curve from its means; the ensemble is a tenth better unless it is given."""
    values = {"avg_member_nll": member, "ensemble_nll": ensemble or [0.9 * value for value in member]}
    return Curve(EPOCHS[: len(member)], {name: np.array(rows)[:, None] + noise for name, rows in values.items()})


FINISHED = [
    curve([0.30, 0.22, 0.20, 0.19]),
    curve([0.31, 0.24, 0.22, 0.21]),
    curve([0.50, 0.46, 0.44, 0.43]),
    curve([0.90, 0.86, 0.84, 0.83]),
]


def test_a_trial_far_behind_on_both_is_stopped() -> None:
    assert is_beaten(curve([0.70, 0.66]), FINISHED)
    assert is_beaten(curve([0.70, 0.66, 0.64]), FINISHED)


def test_one_that_is_as_good_is_not() -> None:
    assert not is_beaten(curve([0.30, 0.22]), FINISHED)
    assert not is_beaten(curve([0.33, 0.25, 0.195]), FINISHED)


@pytest.mark.parametrize("swap", [False, True])
def test_one_that_may_become_either_optimum_is_not(swap: bool) -> None:
    bad, good = [0.70, 0.66, 0.64], [0.25, 0.19, 0.18]
    assert not is_beaten(curve(*((good, bad) if swap else (bad, good))), FINISHED)


def test_the_worst_so_far_is_not_because_nobody_knows_what_it_may_gain() -> None:
    assert not is_beaten(curve([1.2, 1.1, 1.0]), FINISHED)


def test_late_catching_up_that_was_seen_once_protects_others() -> None:
    late = curve([0.95, 0.90, 0.70, 0.20])  # as under a cosine schedule with much weight decay
    assert is_beaten(curve([0.70, 0.66, 0.60]), FINISHED)
    assert not is_beaten(curve([0.70, 0.66, 0.60]), [*FINISHED[:3], late])


def test_little_is_known_from_few_trials_one_replicate_or_other_epochs() -> None:
    hopeless = curve([0.70, 0.66])
    assert not is_beaten(hopeless, FINISHED[-LEAST_FINISHED + 1 :])
    single = [curve([0.3, 0.2, 0.2, 0.2], noise=NOISE[:, :1]) for _ in range(3)]
    assert not is_beaten(curve([0.7, 0.6], noise=NOISE[:, :1]), [*single, curve([0.9] * 4, noise=NOISE[:, :1])])
    assert not is_beaten(Curve((15,), {name: rows[:1] for name, rows in hopeless.values.items()}), FINISHED)
    assert not is_beaten(Curve((), {}), FINISHED)


def test_replicates_that_disagree_stop_nothing() -> None:
    noisy = curve([0.70, 0.66], noise=np.array([[1.0, -0.6, 0.4, -0.5]]))
    assert not is_beaten(noisy, FINISHED)


def test_a_curve_comes_back_from_json() -> None:
    there = Curve.of({"epoch": [10, 20], "avg_member_nll": [[1.0, 2.0], [0.5, 0.6]]})
    assert there.epochs == (10, 20)
    assert there.until(10).values["avg_member_nll"].tolist() == [[1.0, 2.0]]

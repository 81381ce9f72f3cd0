"""Greedy selection against a slow, obvious one; what it must never do."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensgap.gap import Array
from ensgap.greedy import choose, halves, nll_by_size


def nll(log_likelihoods: Array, who: list[int]) -> float:
    return -float(np.log(np.exp(log_likelihoods[who]).mean(0)).mean())


def slow(log_likelihoods: Array, size: int, replacement: bool) -> list[int]:
    chosen: list[int] = []
    for _ in range(size):
        free = [c for c in range(len(log_likelihoods)) if replacement or c not in chosen]
        chosen.append(min(free, key=lambda c: nll(log_likelihoods, [*chosen, c])))
    return chosen


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_it_is_the_obvious_loop(seed: int, replacement: bool) -> None:
    values = np.log(np.random.default_rng(seed).uniform(0.05, 1, size=(7, 12)))
    chosen = choose(values, 4, replacement)
    assert chosen == slow(values, 4, replacement)
    assert replacement or len(set(chosen)) == 4
    curve = nll_by_size(values[chosen])
    assert curve.tolist() == pytest.approx([nll(values, chosen[: i + 1]) for i in range(4)])


def test_two_that_know_different_halves_are_better_than_two_all_rounders() -> None:
    specialists = np.log([[0.9] * 5 + [0.1] * 5, [0.1] * 5 + [0.9] * 5])
    all_rounders = np.log(np.full((3, 10), 0.49))
    values = np.concatenate([all_rounders, specialists])
    best = min(combinations(range(5), 2), key=lambda pair: nll(values, [*pair]))
    assert best == (3, 4)
    assert choose(values, 1) == [0]  # alone an all-rounder is better: the greedy choice is not always the best
    assert set(choose(values[[3, 4]], 2)) == {0, 1}


def test_more_than_there_are() -> None:
    with pytest.raises(ValueError, match="without replacement"):
        choose(np.zeros((2, 3)), 3)
    assert len(choose(np.zeros((2, 3)), 3, replacement=True)) == 3


def test_halves_share_no_point_and_have_the_same_classes() -> None:
    labels = np.repeat([0, 1, 2], [20, 40, 6])
    one, other = halves(labels, seed=3)
    assert sorted([*one, *other]) == list(range(66))
    assert np.abs(np.bincount(labels[one]) - np.bincount(labels[other])).max() <= 2

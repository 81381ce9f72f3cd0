"""The cyclic holdout: properties for random pools, and requests it must refuse."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ensgap.errors import UserError
from ensgap.holdout import Holdout, cyclic_holdout, parse_order, replicate_holdouts, stratified_order


@st.composite
def pools(draw: st.DrawFn) -> tuple[np.ndarray, int, Holdout, int]:
    members = draw(st.integers(2, 9))
    order = draw(st.integers(1, members))
    counts = draw(st.lists(st.integers(30, 200), min_size=2, max_size=6))
    labels = np.repeat(np.arange(len(counts)), counts)
    fraction = draw(st.floats(0.05, 0.9))
    return labels, members, Holdout(order, fraction), draw(st.integers(0, 10**6))


@settings(max_examples=150, deadline=None)
@given(pools())
def test_every_chunk_is_held_out_by_exactly_k_members_and_training_sizes_are_equal(
    pool: tuple[np.ndarray, int, Holdout, int],
) -> None:
    labels, members, holdout, seed = pool
    try:
        mask = cyclic_holdout(labels, members, holdout, np.random.default_rng(seed)).numpy()
    except UserError:
        assume(False)
    held_by = mask.sum(0)
    assert set(held_by.tolist()) <= {0, holdout.order}
    assert len({int(row.sum()) for row in ~mask}) == 1
    share = mask.sum(1)[0] / len(labels)
    assert share <= holdout.fraction
    assert share > holdout.fraction - (holdout.order + 1) / len(labels)
    # member m shares k-1 chunks with member m+1: the cycle
    overlap = (mask[0] & mask[1]).sum() if members > 1 else 0
    if holdout.order == 1:
        assert overlap == 0
    if holdout.order == members:
        assert (mask == mask[0]).all()
    # stratified: each member's holdout has every class in its proportion, within the rounding of its chunks
    for c in np.unique(labels):
        expected = mask.sum(1)[0] * (labels == c).mean()
        assert np.abs(mask[:, labels == c].sum(1) - expected).max() <= 2 * holdout.order + 1


def test_the_cycle_itself() -> None:
    labels = np.zeros(40, dtype=int)
    mask = cyclic_holdout(labels, 4, Holdout(2, 0.25), np.random.default_rng(0)).numpy()
    chunks = [set(np.flatnonzero(mask[m] & mask[(m + 1) % 4]).tolist()) for m in range(4)]
    for m in range(4):
        assert set(np.flatnonzero(mask[m]).tolist()) == chunks[m - 1] | chunks[m]
        assert len(chunks[m]) == 5


def test_a_shared_holdout_is_the_same_split_for_any_number_of_members() -> None:
    labels = np.arange(200) % 5
    splits = [cyclic_holdout(labels, m, Holdout(m, 0.33), np.random.default_rng(3))[0] for m in (2, 5, 8)]
    assert all(torch.equal(splits[0], other) for other in splits[1:])
    assert int(splits[0].sum()) == 66


def test_stratified_order_is_a_permutation_whose_stretches_have_all_classes() -> None:
    labels = np.repeat([0, 1, 2], [60, 30, 10])
    order = stratified_order(labels, np.random.default_rng(1))
    assert sorted(order.tolist()) == list(range(100))
    for start in range(0, 100, 20):
        assert np.bincount(labels[order[start : start + 20]], minlength=3)[0] in (11, 12, 13)


def test_replicates_have_splits_of_their_own_that_do_not_depend_on_each_other() -> None:
    labels = torch.arange(300) % 3
    several = replicate_holdouts(labels, 7, (0, 1, 2), 4, Holdout(2, 0.2))
    alone = replicate_holdouts(labels, 7, (2,), 4, Holdout(2, 0.2))
    assert several.shape == (3, 4, 300)
    assert torch.equal(several[2], alone[0])
    assert not torch.equal(several[0], several[1])


@pytest.mark.parametrize(
    ("members", "holdout", "words"),
    [
        (4, Holdout(1, 0.3), "do not fit"),
        (4, Holdout(4, 0.01), "leaves no point of class"),
        (4, Holdout(4, 0.99), "training data"),
        (4, Holdout(4, 1.2), "between 0 and 1"),
        (4, Holdout(5, 0.1), "holdout order"),
    ],
)
def test_impossible_requests_are_refused(members: int, holdout: Holdout, words: str) -> None:
    with pytest.raises(UserError, match=words):
        cyclic_holdout(np.arange(60) % 3, members, holdout, np.random.default_rng(0))


def test_names_of_orders() -> None:
    assert [parse_order(name, 8) for name in ("disjoint", "overlapping", "shared", "5")] == [1, 2, 8, 5]
    for bad in ("none", "0", "9"):
        with pytest.raises(UserError):
            parse_order(bad, 8)


def test_targets_are_stratified_by_their_quantiles() -> None:
    targets = np.random.default_rng(0).lognormal(size=200).astype(np.float32)
    mask = cyclic_holdout(targets, 4, Holdout(4, 0.2), np.random.default_rng(1)).numpy()
    assert mask.sum(1).tolist() == [40] * 4
    tenth = np.argsort(np.argsort(targets)) // 20
    assert np.bincount(tenth[mask[0]], minlength=10).tolist() == [4] * 10


def test_too_few_targets_to_hold_out() -> None:
    with pytest.raises(UserError, match="leaves 0 of 20 points"):
        cyclic_holdout(np.arange(20.0), 4, Holdout(4, 0.01), np.random.default_rng(0))

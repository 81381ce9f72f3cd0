"""Stopping rules against a slow, obvious reference on random curves."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ensgap.predictions import Predictions
from ensgap.stopping import RULES, Rule, Stopping, Watch, validation_nll

VALUES = st.sampled_from([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, math.nan])
"""Few of them, so that ties happen; a NaN is never best."""


def reference(curve: list[float], patience: int) -> tuple[int, int]:
    """The epoch kept and the epoch after which it stopped (both from 1; the last epoch if it never did)."""
    best = 0
    for epoch in range(1, len(curve)):
        beats_all = all(not curve[epoch] >= earlier for earlier in curve[:epoch] if not math.isnan(earlier))
        if beats_all and not math.isnan(curve[epoch]):
            best = epoch
        if epoch - best >= patience:
            return best + 1, epoch + 1
    return best + 1, len(curve)


@st.composite
def runs(draw: Any) -> tuple[Tensor, Tensor, int]:
    epochs, ensembles, members = draw(st.integers(1, 12)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    cells = epochs * ensembles * members
    nll = torch.tensor(draw(st.lists(VALUES, min_size=cells, max_size=cells)), dtype=torch.float64)
    joint = torch.tensor(draw(st.lists(VALUES, min_size=epochs * ensembles, max_size=epochs * ensembles)))
    return nll.view(epochs, ensembles, members), joint.double().view(epochs, ensembles), draw(st.integers(1, 4))


@given(runs())
@settings(max_examples=200, deadline=None)
def test_every_rule_equals_the_reference(run: tuple[Tensor, Tensor, int]) -> None:
    nll, joint, patience = run
    watch = Watch(Stopping(patience))
    ends: list[int] = []
    for epoch, (members, ensemble) in enumerate(zip(nll, joint, strict=True)):
        watch.keep(watch.update(members, ensemble), "epoch", torch.full(members.shape, float(epoch + 1)))
        if watch.stopped:
            ends.append(epoch + 1)
    best = watch.best()
    latest = 0.0
    for e in range(nll.shape[1]):
        mean, whole = nll[:, e].mean(-1).tolist(), joint[:, e].tolist()
        for m in range(nll.shape[2]):
            watched: dict[Rule, list[float]] = {
                "individual": nll[:, e, m].tolist(),
                "shared_epoch": mean,
                "joint": whole,
            }
            for rule in RULES:
                kept, end = reference(watched[rule], patience)
                assert best[rule][e, m] == kept
                if not math.isnan(watched[rule][0]):
                    assert watch.kept[rule]["epoch"][e, m] == kept
                stopped = end < len(nll) or end - kept >= patience
                latest = max(latest, end if stopped else math.inf)
    assert (ends[0] if ends else math.inf) == latest


def test_only_the_rules_asked_for_are_waited_for() -> None:
    watch = Watch(Stopping(patience=1, rules=("joint",)))
    watch.update(torch.tensor([[0.5, 0.5]]), torch.tensor([0.4]))
    improved = watch.update(torch.tensor([[0.1, 0.1]]), torch.tensor([0.4]))
    assert list(improved) == ["joint"]
    assert watch.stopped


def test_without_a_joint_nll_there_is_no_joint_rule() -> None:
    watch = Watch(Stopping(patience=2))
    assert list(watch.update(torch.tensor([[0.5, 0.5]]), None)) == ["individual", "shared_epoch"]


def test_a_watch_goes_on_from_its_state() -> None:
    curves = torch.rand(9, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    straight, first, second = Watch(Stopping(3)), Watch(Stopping(3)), Watch(Stopping(3))
    for epoch, values in enumerate(curves):
        if epoch == 4:
            second.load_state_dict(first.state_dict())
        for watch in (straight, first if epoch < 4 else second):
            watch.keep(watch.update(values, values.mean(-1)), "x", values.unsqueeze(-1))
    for rule in RULES:
        assert torch.equal(straight.best()[rule], second.best()[rule])
        assert torch.equal(straight.kept[rule]["x"], second.kept[rule]["x"])


@pytest.mark.parametrize("order", [1, 2, 3])
def test_validation_nll_is_of_held_out_points_only(order: int) -> None:
    generator = torch.Generator().manual_seed(order)
    logits = torch.randn(2, 3, 6, 4, generator=generator, dtype=torch.float64)
    labels = torch.randint(4, (2, 6), generator=generator)
    chunk = torch.arange(6) // 2
    held = torch.stack([((chunk - m) % 3) < order for m in range(3)]).expand(2, -1, -1)
    member_nll, joint_nll = validation_nll(Predictions(logits, labels, held, torch.arange(6).expand(2, -1)))
    probs = logits.softmax(-1)
    for e in range(2):
        for m in range(3):
            own = [-math.log(probs[e, m, i, labels[e, i]]) for i in range(6) if held[e, m, i]]
            assert member_nll[e, m].item() == pytest.approx(sum(own) / len(own))
        if joint_nll is not None:
            points = [torch.stack([probs[e, m, i] for m in range(3) if held[e, m, i]]).mean(0) for i in range(6)]
            expected = -sum(math.log(p[labels[e, i]]) for i, p in enumerate(points)) / 6
            assert joint_nll[e].item() == pytest.approx(expected)
    assert (joint_nll is None) == (order == 1)

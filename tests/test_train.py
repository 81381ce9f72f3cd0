"""The property that everything rests on: a stack equals a plain loop over ordinary networks (C2, C3, C4)."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ensgap.bench.loop import PlainMLP, train_loop
from ensgap.networks.mlp import StackedMLP
from ensgap.seeds import INIT, ORDER, member_generators
from ensgap.stack import member_state
from ensgap.tasks import Points
from ensgap.train import TrainConfig, Training, batch_bounds, lr_factor, nll_and_gradient, predict

CONFIG = TrainConfig(optimizer="sgd", lr=0.05, schedule="cosine", epochs=4, batch_size=16)
POOL, TRAIN = 90, 70


@pytest.fixture(scope="module")
def points() -> Points:
    g = torch.Generator().manual_seed(0)
    return Points(torch.randn(POOL, 6, generator=g, dtype=torch.float64), torch.randint(3, (POOL,), generator=g))


def build(
    points: Points,
    replicates: tuple[int, ...],
    members: int,
    config: TrainConfig,
    weight_decay: Any = 1e-3,
    lr: Any = None,
) -> Training:
    stack = len(replicates) * members
    network = StackedMLP(member_generators(9, replicates, members, INIT), 6, (12, 8), 3).double()
    rows = [
        torch.randperm(POOL, generator=torch.Generator().manual_seed(100 * r + m))[:TRAIN]
        for r in replicates
        for m in range(members)
    ]
    vector = {
        "lr": torch.as_tensor(config.lr if lr is None else lr, dtype=torch.float64).expand(stack),
        "weight_decay": torch.as_tensor(weight_decay, dtype=torch.float64).expand(stack),
    }
    orders = member_generators(9, replicates, members, ORDER)
    return Training(network, points, torch.stack(rows), config, vector["lr"], vector["weight_decay"], orders)


def finish(training: Training) -> Training:
    for _ in training.epochs():
        pass
    return training


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_the_stack_equals_the_loop(points: Points, optimizer: Any, schedule: Any) -> None:
    config = replace(CONFIG, optimizer=optimizer, schedule=schedule, lr=0.05 if optimizer == "sgd" else 0.005)
    decay, lr = [0.0, 1e-3, 1e-1, 1e-2, 1e-2, 0.0], [config.lr] * 5 + [2 * config.lr]
    training = build(points, (0, 1), 3, config, torch.tensor(decay), torch.tensor(lr))
    twins: list[PlainMLP] = []
    for m in range(6):
        twin = PlainMLP(6, (12, 8), 3).double()
        twin.load_state_dict(member_state(training.network, m), strict=False)
        twins.append(twin)
    finish(training)
    orders = member_generators(9, (0, 1), 3, ORDER)
    train_loop(twins, points, training.train_index, config, lr, decay, orders)
    everything = torch.arange(POOL).expand(6, -1)
    logits = predict(training.network, points, everything)
    for m, twin in enumerate(twins):
        ours, theirs = member_state(training.network, m), twin.state_dict()
        for name, value in ours.items():
            torch.testing.assert_close(value, theirs[name])
        torch.testing.assert_close(logits[m], twin.eval()(points.inputs).detach())


def test_a_member_alone_equals_itself_in_larger_stacks(points: Points) -> None:
    large = finish(build(points, (0, 1, 2, 3, 4), 8, CONFIG))
    for replicates, members in (((3,), 4), ((3, 0), 8)):
        small = finish(build(points, replicates, members, CONFIG))
        for name, value in member_state(small.network, 2).items():
            torch.testing.assert_close(value, member_state(large.network, 3 * 8 + 2)[name])


def test_the_gradient_of_a_member_does_not_depend_on_their_number(points: Points) -> None:
    config = replace(CONFIG, epochs=1, batch_size=TRAIN)
    one, eight = (finish(build(points, (0,), m, config)) for m in (1, 8))
    torch.testing.assert_close(one.network.layers[0].weight[0], eight.network.layers[0].weight[0])  # type: ignore[index,union-attr]


def test_figures_of_an_epoch(points: Points) -> None:
    training = build(points, (0,), 2, replace(CONFIG, epochs=30))
    epochs = list(training.epochs())
    assert [e.epoch for e in epochs] == list(range(1, 31))
    assert epochs[0].train_nll.shape == (2,)
    assert epochs[0].train_nll.mean().item() == pytest.approx(math.log(3), rel=0.3)
    assert epochs[-1].train_nll.mean() < 0.8 * epochs[0].train_nll.mean()
    assert not any(e.diverged for e in epochs)


def test_divergence_is_noticed(points: Points) -> None:
    lr = torch.tensor([0.05, 1e30, 0.05])
    assert any(e.diverged for e in build(points, (0,), 3, replace(CONFIG, schedule="constant"), lr=lr).epochs())


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_restored_run_continues_bit_for_bit(points: Points, tmp_path: Path, optimizer: Any) -> None:
    config = replace(CONFIG, optimizer=optimizer)
    straight = finish(build(points, (0, 1), 2, config))
    first = build(points, (0, 1), 2, config)
    for epoch in first.epochs():
        if epoch.epoch == 2:
            break
    torch.save(first.state_dict(), tmp_path / "state.pt")
    second = build(points, (0, 1), 2, config)
    second.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert [e.epoch for e in second.epochs()] == [3, 4]
    for name, value in straight.network.state_dict().items():
        assert torch.equal(value, second.network.state_dict()[name]), name


def test_schedules() -> None:
    assert [round(lr_factor("cosine", e, 4), 4) for e in range(4)] == [1.0, 0.8536, 0.5, 0.1464]
    assert lr_factor("constant", 3, 4) == 1.0


def test_batches_cover_every_point_once_and_never_hold_just_one() -> None:
    assert batch_bounds(300, 128) == [(0, 128), (128, 256), (256, 300)]
    assert batch_bounds(257, 128) == [(0, 128), (128, 257)]
    assert batch_bounds(64, 128) == [(0, 64)]


def test_prediction_leaves_running_statistics_alone(points: Points) -> None:
    training = finish(build(points, (0,), 2, CONFIG))
    before = {name: value.clone() for name, value in training.network.state_dict().items()}
    index = torch.arange(POOL).expand(2, -1)
    whole = predict(training.network, points, index)
    pieces = predict(training.network, points, index, batch_size=7)
    torch.testing.assert_close(whole, pieces)
    assert all(torch.equal(before[name], value) for name, value in training.network.state_dict().items())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_written_out_gradient_is_autograds(dtype: torch.dtype) -> None:
    logits = (10 * torch.randn(3, 5, 4, dtype=torch.float64)).to(dtype).requires_grad_()
    labels = torch.randint(4, (3, 5))
    nll, gradient = nll_and_gradient(logits, labels)
    exact = logits.double().flatten(0, 1)
    losses = torch.nn.functional.cross_entropy(exact, labels.flatten(), reduction="none").view(3, 5).sum(1)
    torch.testing.assert_close(nll.double(), losses.detach(), rtol=1e-5, atol=1e-5)
    (expected,) = torch.autograd.grad(losses.sum(), logits)
    assert gradient.dtype == dtype
    torch.testing.assert_close(gradient, expected, rtol=1e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-5)

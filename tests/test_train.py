"""The property that everything rests on: a stack equals a plain loop over ordinary networks (C2, C3, C4)."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ensgap.bench.loop import train_loop
from ensgap.networks.mlp import MLP, StackedMLP
from ensgap.points import TensorPoints
from ensgap.seeds import INIT, ORDER, member_generators
from ensgap.stack import BatchedStack, OptimizerConfig
from ensgap.stack.stack import nll_and_gradient
from ensgap.train import TrainConfig, Training, batch_bounds, lr_factor

CONFIG = TrainConfig(optimizer="sgd", lr=0.05, schedule="cosine", epochs=4, batch_size=16)
POOL, TRAIN = 90, 70
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def points() -> TensorPoints:
    g = torch.Generator().manual_seed(0)
    return TensorPoints(torch.randn(POOL, 6, generator=g, dtype=torch.float64), torch.randint(3, (POOL,), generator=g))


def build(
    points: TensorPoints,
    replicates: tuple[int, ...],
    members: int,
    config: TrainConfig,
    weight_decay: list[float] | None = None,
    lr: list[float] | None = None,
) -> Training:
    stack = len(replicates) * members
    networks = [MLP(6, (12, 8), 3, g).double() for g in member_generators(9, replicates, members, INIT)]
    rows = [
        torch.randperm(POOL, generator=torch.Generator().manual_seed(100 * r + m))[:TRAIN]
        for r in replicates
        for m in range(members)
    ]
    optimizer = OptimizerConfig(config.optimizer, lr or [config.lr] * stack, weight_decay or [1e-3] * stack)
    batched = BatchedStack(StackedMLP(stack, 6, (12, 8), 3), networks, optimizer, CPU)
    orders = member_generators(9, replicates, members, ORDER)
    return Training(batched, points, torch.stack(rows), config, orders)


def finish(training: Training) -> Training:
    for _ in training.epochs():
        pass
    return training


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_the_stack_equals_the_loop(points: TensorPoints, optimizer: Any, schedule: Any) -> None:
    config = replace(CONFIG, optimizer=optimizer, schedule=schedule, lr=0.05 if optimizer == "sgd" else 0.005)
    decay, lr = [0.0, 1e-3, 1e-1, 1e-2, 1e-2, 0.0], [config.lr] * 5 + [2 * config.lr]
    training = build(points, (0, 1), 3, config, decay, lr)
    twins = []
    for m in range(6):
        twin = MLP(6, (12, 8), 3).double()
        twin.load_state_dict(training.stack.member_state(m), strict=False)
        twins.append(twin)
    finish(training)
    orders = member_generators(9, (0, 1), 3, ORDER)
    train_loop(twins, points, training.train_index, config, lr, decay, orders)
    logits = training.predict(points, torch.arange(POOL).expand(6, -1))
    for m, twin in enumerate(twins):
        for name, value in training.stack.member_state(m).items():
            torch.testing.assert_close(value, twin.state_dict()[name])
        torch.testing.assert_close(logits[m], twin.eval()(points.inputs).detach())


def test_a_member_alone_equals_itself_in_larger_stacks(points: TensorPoints) -> None:
    large = finish(build(points, (0, 1, 2, 3, 4), 8, CONFIG))
    for replicates, members in (((3,), 4), ((3, 0), 8)):
        small = finish(build(points, replicates, members, CONFIG))
        for name, value in small.stack.member_state(2).items():
            torch.testing.assert_close(value, large.stack.member_state(3 * 8 + 2)[name])


def test_the_gradient_of_a_member_does_not_depend_on_their_number(points: TensorPoints) -> None:
    config = replace(CONFIG, epochs=1, batch_size=TRAIN)
    one, eight = (finish(build(points, (0,), m, config)) for m in (1, 8))
    torch.testing.assert_close(one.stack.member_state(0), eight.stack.member_state(0))


def test_figures_of_an_epoch(points: TensorPoints) -> None:
    training = build(points, (0,), 2, replace(CONFIG, epochs=30))
    epochs = list(training.epochs())
    assert [e.epoch for e in epochs] == list(range(1, 31))
    assert epochs[0].train_nll.shape == (2,)
    assert epochs[0].train_nll.mean().item() == pytest.approx(math.log(3), rel=0.3)
    assert epochs[-1].train_nll.mean() < 0.8 * epochs[0].train_nll.mean()
    assert not any(e.diverged for e in epochs)


def test_divergence_is_noticed(points: TensorPoints) -> None:
    lr = [0.05, 1e30, 0.05]
    assert any(e.diverged for e in build(points, (0,), 3, replace(CONFIG, schedule="constant"), lr=lr).epochs())


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_restored_run_continues_bit_for_bit(points: TensorPoints, tmp_path: Path, optimizer: Any) -> None:
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
    for m in range(4):
        for name, value in straight.stack.member_state(m).items():
            assert torch.equal(value, second.stack.member_state(m)[name]), name


def test_schedules() -> None:
    assert [round(lr_factor("cosine", e, 4), 4) for e in range(4)] == [1.0, 0.8536, 0.5, 0.1464]
    assert lr_factor("constant", 3, 4) == 1.0


def test_batches_cover_every_point_once_and_never_hold_just_one() -> None:
    assert batch_bounds(300, 128) == [(0, 128), (128, 256), (256, 300)]
    assert batch_bounds(257, 128) == [(0, 128), (128, 257)]
    assert batch_bounds(64, 128) == [(0, 64)]


def test_prediction_leaves_running_statistics_alone(points: TensorPoints) -> None:
    training = finish(build(points, (0,), 2, CONFIG))
    before = training.stack.member_state(1)
    index = torch.arange(POOL).expand(2, -1)
    whole = training.stack.logits(points.gather(index))
    torch.testing.assert_close(whole, training.predict(points, index))
    assert all(torch.equal(before[name], value) for name, value in training.stack.member_state(1).items())


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

"""A stack of BatchEnsembles against ordinary networks with explicit weights, and against itself in other company."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensgap.errors import UserError
from ensgap.networks.mlp import MLP, batch_ensemble_mlp
from ensgap.networks.wide_resnet import WideResNet, batch_ensemble_wide_resnet
from ensgap.points import TensorPoints
from ensgap.seeds import ORDER, SLOW, derive_seed, member_generators
from ensgap.stack import BatchEnsembleStack, FastInit, Kernels, OptimizerConfig
from ensgap.stack.batch_ensemble import with_biases
from ensgap.stack.optim import OptimizerName
from ensgap.tasks import Task, get_task
from ensgap.train import TrainConfig, Training

CPU = torch.device("cpu")
MEMBERS, POOL, BATCH = 3, 40, 12
TASKS = {
    "mlp": replace(
        get_task("digits"),
        member=lambda g: MLP(6, (8, 40), 3, g).double(),
        batch_ensemble=lambda e, m: batch_ensemble_mlp(e, m, 6, (8, 40), 3),
    ),
    "wide_resnet": replace(
        get_task("cifar10"),
        member=lambda g: WideResNet(10, 1, 3, g).double(),
        batch_ensemble=lambda e, m: batch_ensemble_wide_resnet(e, m, 10, 1, 3),
    ),
}
WAYS: list[tuple[str, Kernels]] = [
    ("mlp", "batched"),
    ("mlp", "loop"),
    ("wide_resnet", "batched"),
    ("wide_resnet", "loop"),
]


def points_of(name: str) -> TensorPoints:
    g = torch.Generator().manual_seed(0)
    shape = (6,) if name == "mlp" else (3, 8, 8)
    return TensorPoints(
        torch.randn(POOL, *shape, generator=g, dtype=torch.float64), torch.randint(3, (POOL,), generator=g)
    )


def build(
    task: Task,
    replicates: Sequence[int],
    optimizer: OptimizerName = "sgd",
    init: FastInit = "sign",
    kernels: Kernels = "auto",
    settings: Sequence[tuple[float, float]] | None = None,  # learning rate and weight decay of every replicate
    members: int = MEMBERS,
) -> BatchEnsembleStack:
    pairs = [pair for pair in settings or [(0.02, 0.1)] * len(replicates) for _ in range(members)]
    config = OptimizerConfig(optimizer, [lr for lr, _ in pairs], [decay for _, decay in pairs])
    stack = task.batch_ensemble_stack(7, replicates, members, init, config, CPU, kernels=kernels)
    assert isinstance(stack, BatchEnsembleStack)
    return stack


def training_of(stack: BatchEnsembleStack, name: str, replicates: Sequence[int], epochs: int = 3) -> Training:
    config = TrainConfig(epochs=epochs, batch_size=BATCH)
    rows = [
        torch.randperm(POOL, generator=torch.Generator().manual_seed(100 * r + m))[:30]
        for r in replicates
        for m in range(MEMBERS)
    ]
    orders = member_generators(7, replicates, MEMBERS, ORDER)
    return Training(stack, points_of(name), torch.stack(rows), config, orders)


def finish(training: Training) -> Training:
    for _ in training.epochs():
        pass
    return training


def explicit_network(task: Task, stack: BatchEnsembleStack, member: int) -> nn.Module:
    """An ordinary network with the member's weights."""
    network = with_biases(task.member(None))
    missing, unexpected = network.load_state_dict(stack.member_state(member), strict=False)
    assert not unexpected and all(name.endswith("num_batches_tracked") for name in missing)
    return network


@pytest.mark.parametrize(("name", "kernels"), WAYS)
def test_fast_weights_of_one_give_copies_of_one_network(name: str, kernels: Kernels) -> None:
    task = TASKS[name]
    stack = build(task, (0, 1), kernels=kernels)
    for parameter_name, parameter in stack.network.named_parameters():
        if parameter_name.endswith((".r", ".s")):
            parameter.data.fill_(1.0)
    inputs, labels = points_of(name).inputs[:BATCH], points_of(name).labels[:BATCH]
    stacked = inputs.expand(2 * MEMBERS, *inputs.shape)
    for replicate in (0, 1):
        network = task.member(torch.Generator().manual_seed(derive_seed(7, replicate, SLOW)))
        members = slice(replicate * MEMBERS, (replicate + 1) * MEMBERS)
        one = network.eval()(inputs).detach()
        torch.testing.assert_close(stack.logits(stacked)[members], one.expand(MEMBERS, *one.shape))
        before = {key: value.clone() for key, value in stack.state_dict()["network"].items()}
        nll = stack.step(stacked, labels.expand(2 * MEMBERS, -1), BATCH)
        stack.network.load_state_dict(before)
        loss = F.cross_entropy(network.train()(inputs), labels, reduction="sum").detach()
        torch.testing.assert_close(nll[members], loss.expand(MEMBERS))


@pytest.mark.parametrize("init", ["sign", "gaussian_0.5"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize(("name", "kernels"), WAYS)
def test_steps_equal_those_of_explicit_networks(
    name: str, kernels: Kernels, optimizer: OptimizerName, init: FastInit
) -> None:
    """The parameters in `torch.optim`, each member an ordinary network with weights W ∘ (s rᵀ): the gradient of W is
    the mean over its members, and r and s do not decay.

    A bias that a batch norm takes away again has a gradient of rounding errors, which Adam blows up; such biases are
    compared under SGD.
    """
    task, points, lr, decay = TASKS[name], points_of(name), 0.02, 0.1
    stack = build(task, (0, 1), optimizer, init, kernels, [(lr, decay)] * 2)
    stack.set_lr_factor(0.5)
    twin = {key: value.detach().clone() for key, value in stack.network.named_parameters()}
    groups = [
        {"params": [v for k, v in twin.items() if not k.endswith((".r", ".s"))], "weight_decay": decay},
        {"params": [v for k, v in twin.items() if k.endswith((".r", ".s"))], "weight_decay": 0.0},
    ]
    reference: torch.optim.Optimizer = (
        torch.optim.SGD(groups, lr / 2, momentum=0.9) if optimizer == "sgd" else torch.optim.Adam(groups, lr / 2)
    )
    networks = [explicit_network(task, stack, m) for m in range(2 * MEMBERS)]
    for step in range(3):
        index = torch.randint(POOL, (2 * MEMBERS, BATCH), generator=torch.Generator().manual_seed(step))
        inputs, labels = points.gather(index), points.labels[index]
        gradients = {key: torch.zeros_like(value) for key, value in twin.items()}
        losses = []
        for m, network in enumerate(networks):
            losses.append(F.cross_entropy(network.train()(inputs[m]), labels[m], reduction="sum"))
            found = torch.autograd.grad(losses[-1] / (2 * BATCH), list(network.parameters()))
            for (key, _), gradient in zip(network.named_parameters(), found, strict=True):
                add_gradient(gradients, twin, key, gradient, m)
        nll = stack.step(inputs, labels, 2 * BATCH)
        torch.testing.assert_close(nll, torch.stack(losses).detach())
        for key, value in twin.items():
            value.grad = gradients[key]
        reference.step()
        rounding = {key for key, gradient in gradients.items() if gradient.abs().max() < 1e-12}
        assert rounding == {f"{layer}bias" for layer in stack.layers[:-1]}
        for key, value in stack.network.named_parameters():
            if optimizer == "sgd" or key not in rounding:
                torch.testing.assert_close({key: value.detach()}, {key: twin[key]})
        for m, network in enumerate(networks):
            updated = explicit_network(task, stack, m)
            for key, buffer in network.named_buffers():
                if not key.endswith("num_batches_tracked"):
                    torch.testing.assert_close(updated.state_dict()[key], buffer)
        networks = [explicit_network(task, stack, m) for m in range(2 * MEMBERS)]
    every = torch.arange(POOL).expand(2 * MEMBERS, -1)
    logits = stack.logits(points.gather(every))
    for m, network in enumerate(networks):
        torch.testing.assert_close(logits[m], network.eval()(points.inputs).detach())


def add_gradient(gradients: dict[str, Tensor], twin: dict[str, Tensor], key: str, gradient: Tensor, m: int) -> None:
    """What an explicit weight's gradient is in W, r and s; everything else is the member's own."""
    layer = key.removesuffix(".weight")
    if f"{layer}.r" not in twin:
        gradients[key][m] = gradient
        return
    weight, r, s = twin[key][m // MEMBERS], twin[f"{layer}.r"][m], twin[f"{layer}.s"][m]
    ones = (1,) * (weight.dim() - 2)
    gradients[key][m // MEMBERS] += gradient * s.view(-1, 1, *ones) * r.view(1, -1, *ones) / MEMBERS
    both = (gradient * weight).flatten(2).sum(2) if ones else gradient * weight  # [outputs, inputs]
    gradients[f"{layer}.r"][m] = s @ both
    gradients[f"{layer}.s"][m] = both @ r


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize(("name", "kernels"), WAYS)
def test_an_ensemble_alone_equals_itself_in_a_larger_stack(
    name: str, kernels: Kernels, optimizer: OptimizerName
) -> None:
    decay = 0.1 if optimizer == "sgd" else 0.0  # with Adam, decay blows up rounding errors of biases before batch norms
    settings = [(0.05, 0.0), (0.02, decay), (0.02, decay), (0.01, 3 * decay)]
    large = finish(
        training_of(build(TASKS[name], (0, 1, 5, 2), optimizer, "sign", kernels, settings), name, (0, 1, 5, 2))
    )
    for place, replicate in enumerate((0, 1, 5, 2)):
        alone = build(TASKS[name], (replicate,), optimizer, "sign", kernels, settings[place : place + 1])
        small = finish(training_of(alone, name, (replicate,)))
        for m in range(MEMBERS):
            expected = large.stack.member_state(place * MEMBERS + m)
            torch.testing.assert_close(small.stack.member_state(m), expected)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize(("name", "kernels"), WAYS)
def test_a_restored_run_continues_bit_for_bit(
    name: str, kernels: Kernels, optimizer: OptimizerName, tmp_path: Path
) -> None:
    def begin() -> Training:
        return training_of(build(TASKS[name], (0, 1), optimizer, kernels=kernels), name, (0, 1), epochs=4)

    straight, first, second = finish(begin()), begin(), begin()
    for epoch in first.epochs():
        if epoch.epoch == 2:
            break
    torch.save(first.state_dict(), tmp_path / "state.pt")
    second.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert [epoch.epoch for epoch in second.epochs()] == [3, 4]
    expected = straight.stack.state_dict()["network"]
    for key, value in second.stack.state_dict()["network"].items():
        assert torch.equal(value, expected[key]), key


@pytest.mark.parametrize("name", TASKS)
def test_slow_weights_begin_as_the_ordinary_networks(name: str) -> None:
    task = TASKS[name]
    stack = build(task, (4, 9))
    for e, replicate in enumerate((4, 9)):
        state = task.member(torch.Generator().manual_seed(derive_seed(7, replicate, SLOW))).state_dict()
        for key, value in stack.network.named_parameters():
            if key in stack.slow:
                assert torch.equal(value[e], state[key])
            elif not key.endswith((".r", ".s")):
                start = state.get(key, torch.zeros(value.shape[1:], dtype=torch.float64))
                assert torch.equal(value[e * MEMBERS : (e + 1) * MEMBERS], start.expand(MEMBERS, *start.shape))


def test_a_learning_rate_means_the_same_for_every_number_of_members() -> None:
    """Members that are alike move the slow weights as one of them would."""
    points, moved = points_of("mlp"), []
    for members in (1, 4):
        stack = build(TASKS["mlp"], (0,), members=members)
        for key, parameter in stack.network.named_parameters():
            if key.endswith((".r", ".s")):
                parameter.data.fill_(1.0)
        index = torch.arange(BATCH).expand(members, -1)
        stack.step(points.gather(index), points.labels[index], BATCH)
        moved.append(stack.member_state(0))
    torch.testing.assert_close(moved[0], moved[1])


@pytest.mark.parametrize(("name", "kernels"), WAYS)
def test_mixed_precision_stays_close(name: str, kernels: Kernels) -> None:
    task = replace(TASKS[name], member=lambda g: TASKS[name].member(g).float())
    config = OptimizerConfig("sgd", [0.05] * MEMBERS, [1e-3] * MEMBERS)
    index = torch.arange(MEMBERS * BATCH).view(MEMBERS, -1)
    inputs, labels = points_of(name).gather(index).float(), points_of(name).labels[index]
    exact, mixed = (
        task.batch_ensemble_stack(7, (0,), MEMBERS, "sign", config, CPU, precision, kernels)
        for precision in ("float32", "bfloat16")
    )
    nll = [stack.step(inputs, labels, BATCH) for stack in (exact, mixed)]
    assert not torch.equal(nll[0], nll[1])
    torch.testing.assert_close(nll[0], nll[1], rtol=0.1, atol=0.1)
    assert mixed.logits(inputs).dtype == torch.float32
    assert all(value.dtype == torch.float32 for value in mixed.member_state(0).values())


def test_members_of_one_ensemble_must_agree_on_the_setting() -> None:
    task = TASKS["mlp"]
    config = OptimizerConfig("sgd", [0.1] * 6, [0.0, 0.0, 0.0, 0.1, 0.2, 0.1])
    with pytest.raises(ValueError, match=r"one learning rate and one weight decay.* ensembles \[1\] of 3 members"):
        task.batch_ensemble_stack(7, (0, 1), 3, "sign", config, CPU)
    with pytest.raises(ValueError, match="each of the 9 members"):
        task.batch_ensemble_stack(7, (0, 1, 2), 3, "sign", config, CPU)


def test_a_task_without_it_says_so() -> None:
    config = OptimizerConfig("sgd", [0.1] * 2, [0.0] * 2)
    with pytest.raises(UserError, match=r"BatchEnsemble is built for digits, covertype and cifar10; .* nci1"):
        get_task("nci1").batch_ensemble_stack(7, (0,), 2, "sign", config, CPU)

"""Label smoothing: the written-out gradient is that of torch's cross entropy, and each member has its own amount."""

import torch
from torch import nn
from torch.nn import functional as F

from ensgap.networks.mlp import MLP, StackedMLP
from ensgap.stack import BatchedStack, LoopStack, OptimizerConfig
from ensgap.stack.stack import nll_and_gradient, smooth

AMOUNTS = (0.0, 0.1, 0.5)
CPU = torch.device("cpu")


def test_the_gradient_is_that_of_cross_entropy_with_smoothed_labels() -> None:
    logits = torch.randn(3, 7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    labels = torch.arange(21).view(3, 7) % 4
    _, gradient = nll_and_gradient(logits.detach(), labels)
    smooth(gradient, labels, torch.tensor(AMOUNTS, dtype=torch.float64).view(-1, 1, 1))
    losses = [
        F.cross_entropy(logits[m], labels[m], reduction="sum", label_smoothing=amount)
        for m, amount in enumerate(AMOUNTS)
    ]
    (expected,) = torch.autograd.grad(torch.stack(losses).sum(), logits)
    assert torch.allclose(gradient, expected)


def test_a_batched_stack_and_a_loop_smooth_alike_and_differently_per_member() -> None:
    def members() -> list[nn.Module]:
        return [MLP(5, (8,), 3, torch.Generator().manual_seed(0)).double() for _ in AMOUNTS]

    config = OptimizerConfig("sgd", [0.1] * 3, [0.0] * 3, label_smoothing=AMOUNTS)
    plain = OptimizerConfig("sgd", [0.1] * 3, [0.0] * 3)
    x, labels = torch.randn(1, 6, 5).double().expand(3, -1, -1), torch.arange(6).expand(3, -1) % 3
    states = []
    for make, settings in (
        (lambda c: BatchedStack(StackedMLP(3, 5, (8,), 3), members(), c, CPU), config),
        (lambda c: LoopStack(members(), c, CPU), config),
        (lambda c: LoopStack(members(), c, CPU), plain),
    ):
        stack = make(settings)
        for _ in range(3):
            stack.step(x, labels, 6)
        states.append([stack.member_state(m) for m in range(3)])
    for batched, loop in zip(states[0], states[1], strict=True):
        assert all(torch.allclose(batched[name], loop[name], atol=1e-7) for name in batched)
    name = next(iter(states[0][0]))
    assert torch.allclose(states[0][0][name], states[2][0][name], atol=1e-7)  # an amount of 0 changes nothing
    assert not torch.allclose(states[0][1][name], states[0][2][name], atol=1e-4)

"""Networks that know nothing of stacks, by whichever way they are computed, against a plain loop with torch.optim."""

import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from ensgap.bench.zoo import CLASSES, ZOO, Case
from ensgap.errors import UserError
from ensgap.seeds import INIT, NOISE, derive_seed, member_generators
from ensgap.stack import Kernels, OptimizerConfig, Vectorized, make_member, vectorize, vectorize_members
from ensgap.stack.noise import MemberNoise
from ensgap.stack.stack import call_member

CPU = torch.device("cpu")
MEMBERS, BATCH, STEPS = 3, 6, 2
LR, DECAY = [0.02, 0.05, 0.02], [1e-3, 1e-2, 1e-1]
WAYS = {
    "torchvision ResNet-18": "loop",
    "torchvision MobileNetV3": "vmap",
    "torchvision MLP, dropout": "stacked",
    "nn.TransformerEncoder": "vmap",
    "1-D CNN": "vmap",
    "GRU classifier": "loop",
    "PyG GCN": "loop",
    "embedding bag": "loop",
    "tied weights": "vmap",
    "own autograd function": "vmap",
    "the same, older form": "loop",
}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Two threads wait for each other on kernels this small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def doubled(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(doubled(one) for one in value)
    return value.double() if value.is_floating_point() else value


def batches(case: Case, members: int = MEMBERS, steps: int = STEPS) -> list[tuple[Any, Tensor]]:
    """Every member's own inputs and labels, step by step."""
    found = []
    for step in range(steps):
        generators = [Generator().manual_seed(100 * step + m) for m in range(members)]
        inputs = [doubled(case.batch(BATCH, g)) for g in generators]
        labels = torch.stack([torch.randint(CLASSES, (BATCH,), generator=g) for g in generators])
        found.append((inputs if isinstance(inputs[0], tuple) else torch.stack(inputs), labels))
    return found


def vectorized(
    case: Case, optimizer: str = "sgd", kernels: Kernels = "auto", members: int = MEMBERS
) -> tuple[Vectorized, list[nn.Module]]:
    """A stack in double precision, and its members' twins as they begin."""
    generators = member_generators(1, (0,), members, INIT)
    networks = [make_member(case.network, g).double() for g in generators]
    twins = copy.deepcopy(networks)
    config = OptimizerConfig(optimizer, LR[:members], DECAY[:members])  # type: ignore[arg-type]
    example = doubled(case.batch(BATCH, Generator().manual_seed(7)))
    made = vectorize_members(
        networks, generators, example, config, CPU, kernels=kernels, outputs=CLASSES, batch_size=32
    )
    return made, twins


def train_plainly(twins: list[nn.Module], steps: list[tuple[Any, Tensor]], optimizer: str, random: bool) -> None:
    """Each alone, as anyone would."""
    seeds = [derive_seed(g.initial_seed(), NOISE) for g in member_generators(1, (0,), len(twins), INIT)]
    noise = MemberNoise(seeds, CPU)
    for m, twin in enumerate(twins):
        plain = (
            torch.optim.Adam(twin.parameters(), LR[m], weight_decay=DECAY[m])
            if optimizer == "adam"
            else torch.optim.SGD(twin.parameters(), LR[m], 0.9, weight_decay=DECAY[m])
        )
        twin.train()
        for inputs, labels in steps:
            with noise.of(m) if random else nullcontext():
                loss = F.cross_entropy(call_member(twin, inputs[m]), labels[m])
            plain.zero_grad()
            loss.backward()
            plain.step()


def close(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("name", "optimizer"), [(name, "sgd") for name in ZOO] + [("tied weights", "adam")])
@pytest.mark.parametrize("kernels", ["auto", "batched"])
def test_a_stack_equals_a_plain_loop(name: str, optimizer: str, kernels: Kernels) -> None:
    case = ZOO[name]
    made, twins = vectorized(case, optimizer, kernels, members=2)
    if kernels == "auto":
        assert made.way == WAYS[name], made.why
    steps = batches(case, members=2)
    for m, twin in enumerate(twins):
        close(made.stack.member_state(m), dict(twin.state_dict()))
    for inputs, labels in steps:
        made.stack.step(inputs, labels, BATCH)
    random = any(isinstance(module, nn.Dropout) for module in twins[0].modules())
    train_plainly(twins, steps, optimizer, random)
    logits = made.stack.logits(steps[0][0])
    for m, twin in enumerate(twins):
        close(made.stack.member_state(m), dict(twin.state_dict()))
        torch.testing.assert_close(logits[m], call_member(twin.eval(), steps[0][0][m]), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["torchvision MLP, dropout", "nn.TransformerEncoder"])
def test_dropout_is_the_members_own(name: str) -> None:
    """Alone (a loop) or with others (batched), from its own seed; and it goes on from a checkpoint bit for bit."""
    steps = batches(ZOO[name])
    three, _ = vectorized(ZOO[name])
    one, _ = vectorized(ZOO[name], members=1)
    assert (three.way, one.way) == (WAYS[name], "loop")
    three.stack.step(*steps[0], BATCH)
    saved = copy.deepcopy(three.stack.state_dict())
    for inputs, labels in steps[1:]:
        three.stack.step(inputs, labels, BATCH)
    for inputs, labels in steps:
        one.stack.step(inputs[:1], labels[:1], BATCH)
    close(three.stack.member_state(0), one.stack.member_state(0))
    torch.rand(3)
    other, _ = vectorized(ZOO[name])
    other.stack.load_state_dict(saved)
    for inputs, labels in steps[1:]:
        other.stack.step(inputs, labels, BATCH)
    for m in range(MEMBERS):
        for name, value in other.stack.member_state(m).items():
            assert torch.equal(value, three.stack.member_state(m)[name]), name


def test_a_factory_gives_seeded_members_and_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    made = vectorize(
        ZOO["torchvision MLP, dropout"].network, 2, torch.randn(4, 16, generator=Generator().manual_seed(0))
    )
    made.stack.step(torch.zeros(2, 4, 16), torch.zeros(2, 4, dtype=torch.int64), 4)
    assert torch.equal(torch.rand(2), expected)
    again = vectorize(ZOO["torchvision MLP, dropout"].network, 2, torch.randn(4, 16))
    again.stack.step(torch.zeros(2, 4, 16), torch.zeros(2, 4, dtype=torch.int64), 4)
    close(made.stack.member_state(1), again.stack.member_state(1))
    assert not torch.equal(made.stack.member_state(0)["0.weight"], made.stack.member_state(1)["0.weight"])


class Small(nn.Module):
    """What the networks below change one thing of."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 3)
        self.unused = nn.Linear(2, 2)
        self._calls = 0

    def forward(self, x: Tensor) -> Any:
        return self.linear(x)


class Counts(Small):
    """State that no checkpoint has, and that a few passes do not show."""

    def forward(self, x: Tensor) -> Tensor:
        self._calls += 1
        y: Tensor = self.linear(x)
        return y * (2 if self._calls > 1000 else 1)


class Branches(Small):
    """Data-dependent control flow."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(x)
        return y if y.sum() > 0 else -y


class ReplacesItsBuffer(Small):
    """A new tensor instead of a change in place."""

    average: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.average = 0.9 * self.average + 0.1 * x.detach().mean(0)
        y: Tensor = self.linear(x - self.average)
        return y


class AlwaysDrops(Small):
    """Forgets to say when it trains."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(F.dropout(x))
        return y


class Noisy(Small):
    """Random numbers that are not dropout's."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(x + torch.randn_like(x) if self.training else x)
        return y


class Pair(Small):
    """Two outputs."""

    def forward(self, x: Tensor) -> Any:
        return self.linear(x), x


class Residual(Small):
    """As people write them: functions, a sum, changes in place, dropout that follows the mode."""

    def __init__(self) -> None:
        super().__init__()
        del self.unused
        self.first, self.norm = nn.Linear(8, 8, bias=False), nn.BatchNorm1d(8, eps=1e-3, momentum=0.3)
        self.norm.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.flatten(x, 1)
        y = 0.5 * F.dropout(F.relu(self.norm(self.first(x)), inplace=True), 0.3, self.training)
        y += x
        logits: Tensor = self.linear(y.tanh())
        return logits


class _Clip(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ARG004
        return x * 1

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # noqa: ARG004
        return grad.clamp(-1e9, 1e9)


class ClipsItsGradient(Small):
    """A backward pass that no few rows show."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(_Clip.apply(x))
        return y


def hooked() -> nn.Module:
    network = Small()
    network.linear.weight.register_hook(lambda grad: grad.clamp(-1e9, 1e9))
    return network


def frozen() -> nn.Module:
    network = Small()
    network.linear.bias.requires_grad_(False)
    return network


@pytest.mark.parametrize(
    ("network", "way", "why"),
    [
        (Counts, "loop", "changes 0._calls, which a resumed trial would lose"),
        (Branches, "loop", "its control flow depends on data"),
        (ReplacesItsBuffer, "vmap", ""),
        (Noisy, "vmap", ""),
        (frozen, "vmap", ""),
        (Residual, "stacked", ""),
        (ClipsItsGradient, "loop", "no rule for its autograd function"),
        (hooked, "loop", "it has hooks"),
    ],
)
def test_odd_networks_train_as_in_a_plain_loop(network: Callable[[], nn.Module], way: str, why: str) -> None:
    def widened() -> nn.Module:
        return nn.Sequential(network(), nn.Linear(3, CLASSES))

    case = Case(widened, lambda size, g: torch.randn(size, 8, generator=g))
    made, twins = vectorized(case)
    assert made.way == way and why in made.why
    steps = batches(case)
    for inputs, labels in steps:
        made.stack.step(inputs, labels, BATCH)
    train_plainly(twins, steps, "sgd", network in (Noisy, Residual))
    for m, twin in enumerate(twins):
        close(made.stack.member_state(m), dict(twin.state_dict()))


class Recomputes(Small):
    """Drops out of a transposed tensor, and on request computes it again in the backward pass."""

    def __init__(self, again: bool) -> None:
        super().__init__()
        self.again = again

    def dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x.T, 0.5, self.training).T * self.linear.weight.sum()

    def forward(self, x: Tensor) -> Tensor:
        x = checkpoint(self.dropped, x, use_reentrant=False) if self.again else self.dropped(x)
        y: Tensor = self.linear(x)
        return y


def test_noise_is_the_same_when_a_backward_pass_computes_it_again() -> None:
    states = []
    for again in (True, False):
        made = vectorize(partial(Recomputes, again), 2, torch.ones(4, 8))
        assert made.way == ("loop" if again else "vmap"), made.why
        for _ in range(2):
            made.stack.step(torch.ones(2, 4, 8), torch.zeros(2, 4, dtype=torch.int64), 4)
        states.append(made.stack.member_state(1))
    torch.testing.assert_close(*states)


def test_a_network_that_cannot_be_copied_is_trained_in_a_loop() -> None:
    def uncopyable() -> nn.Module:
        network = Small()
        network.lock = threading.Lock()  # type: ignore[assignment]
        return network

    made = vectorize(uncopyable, 2, torch.randn(4, 8))
    assert made.way == "loop" and "cannot be copied" in made.why
    made.stack.step(torch.randn(2, 4, 8), torch.zeros(2, 4, dtype=torch.int64), 4)


SHARED = nn.Linear(8, 3)


@pytest.mark.parametrize(
    ("network", "says"),
    [
        (lambda: nn.Linear(8, 4), "output is 4 wide, but the task needs 3"),
        (lambda: nn.Linear(9, 3), r"cannot take a batch of shape \(4, 8\)"),
        (Pair, "returns a tuple"),
        (lambda: nn.Sequential(nn.Linear(8, 3), nn.Flatten(0)), "must be .batch, outputs."),
        (AlwaysDrops, "in evaluation mode are random"),
        (lambda: SHARED, "share weights"),
        (nn.Identity, "no parameters to train"),
        (lambda: nn.LazyLinear(3), "lazy layers"),
        (lambda: nn.Linear(8, int(torch.randint(3, 2000, ()))), "Members must have the same layers"),
        (lambda: 3, "must return a torch.nn.Module"),
        (SHARED, "such as lambda"),
    ],
)
def test_what_cannot_be_trained_is_said_in_one_sentence(network: Callable[[], Any], says: str) -> None:
    generators = member_generators(0, (0,), 2, INIT)
    config = OptimizerConfig("sgd", [0.1] * 2, [0.0] * 2)
    with pytest.raises(UserError, match=says):
        vectorize_members(
            [make_member(network, g) for g in generators], generators, torch.randn(4, 8), config, outputs=3
        )

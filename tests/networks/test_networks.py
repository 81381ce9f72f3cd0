"""Every network as a stack against a plain loop over ordinary networks, both ways of computing it, and its size."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, nn
from torch.nn import functional as F
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv, global_add_pool

from ensgap.bench.loop import PlainBiLSTM, PlainWideResNet, train_loop
from ensgap.graphs import GraphPoints, graph_points
from ensgap.networks.bilstm import BiLSTM, StackedBiLSTM
from ensgap.networks.gcn import CONVOLUTIONS, GCN, StackedGCN
from ensgap.networks.mlp import MLP, StackedMLP
from ensgap.networks.wide_resnet import StackedWideResNet, WideResNet
from ensgap.points import Points, TensorPoints
from ensgap.seeds import INIT, ORDER, member_generators
from ensgap.stack import BatchedStack, LoopStack, OptimizerConfig, Stack
from ensgap.stack.batch_ensemble import named_layers
from ensgap.stack.optim import OptimizerName
from ensgap.stack.products import torch_only
from ensgap.stack.stack import call_member
from ensgap.tasks import get_task
from ensgap.tasks.ag_news import TokenPoints
from ensgap.train import TrainConfig, Training

MEMBERS, POOL, BATCH = 3, 40, 12
CPU = torch.device("cpu")


def tensors(*shape: int) -> TensorPoints:
    g = torch.Generator().manual_seed(0)
    return TensorPoints(
        torch.randn(POOL, *shape, generator=g, dtype=torch.float64), torch.randint(3, (POOL,), generator=g)
    )


def texts() -> TokenPoints:
    g = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 9, (POOL,), generator=g)
    tokens = torch.randint(20, (int(lengths.sum()),), generator=g, dtype=torch.int32)
    return TokenPoints(tokens, F.pad(lengths.cumsum(0), (1, 0)), torch.randint(3, (POOL,), generator=g))


def random_graphs() -> tuple[GraphPoints, list[Data]]:
    """Flat, and as PyG has them."""
    rng = np.random.default_rng(0)
    owner, node_labels, edges, data, first = [], [], [], [], 0
    graph_labels = rng.integers(3, size=POOL)
    for graph in range(POOL):
        nodes = int(rng.integers(1, 8))
        pairs = {(a, b) for a in range(nodes) for b in range(a) if rng.random() < 0.4}
        both = np.array([*pairs, *((b, a) for a, b in pairs)], dtype=np.int64).reshape(-1, 2)
        kinds = rng.integers(5, size=nodes)
        owner += [graph] * nodes
        node_labels += kinds.tolist()
        edges.append(both + first)
        x = F.one_hot(torch.from_numpy(kinds), 5).double()
        data.append(Data(x=x, edge_index=torch.from_numpy(both.T.copy())))
        first += nodes
    flat = graph_points(np.array(owner), np.array(node_labels), np.concatenate(edges).T, graph_labels)
    return flat, data


@dataclass(frozen=True)
class Case:
    """A small network in both forms, and points for it."""

    points: Callable[[], Points]
    member: Callable[[Generator | None], nn.Module]
    stacked: Callable[[int], nn.Module]


CASES = {
    "mlp": Case(lambda: tensors(6), lambda g: MLP(6, (8, 7), 3, g), lambda m: StackedMLP(m, 6, (8, 7), 3)),
    "wide_resnet": Case(
        lambda: tensors(3, 8, 8), lambda g: WideResNet(10, 1, 3, g), lambda m: StackedWideResNet(m, 10, 1, 3)
    ),
    "bilstm": Case(texts, lambda g: BiLSTM(20, 6, 5, 3, g), lambda m: StackedBiLSTM(m, 20, 6, 5, 3)),
    "gcn": Case(lambda: random_graphs()[0], lambda g: GCN(5, 8, 3, g), lambda m: StackedGCN(m, 5, 8, 3)),
}


TWINS: dict[str, Callable[[Any], nn.Module]] = {"wide_resnet": PlainWideResNet, "bilstm": PlainBiLSTM}
"""What those are as anyone would write them, under the same names."""


def members_of(case: Case) -> list[nn.Module]:
    return [case.member(g).double() for g in member_generators(1, (0,), MEMBERS, INIT)]


def close(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    ours, theirs = ({n: v for n, v in state.items() if not n.endswith("num_batches_tracked")} for state in (a, b))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("way", ["batched", "loop"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("name", CASES)
def test_a_stack_equals_a_plain_loop(name: str, optimizer: OptimizerName, way: str) -> None:
    case = CASES[name]
    points, lr, decay = case.points(), [0.02, 0.05, 0.02], [0.0, 1e-2, 1e-1]
    config = TrainConfig(optimizer=optimizer, epochs=2, batch_size=BATCH)
    index = torch.stack([torch.randperm(POOL, generator=torch.Generator().manual_seed(m))[:30] for m in range(MEMBERS)])
    members = members_of(case)
    twins: list[Any] = copy.deepcopy(members)
    twins = [TWINS[name](twin) for twin in twins] if name in TWINS else twins
    settings = OptimizerConfig(optimizer, lr, decay)
    stack: Stack = (
        LoopStack(members, settings, CPU)
        if way == "loop"
        else BatchedStack(case.stacked(MEMBERS), members, settings, CPU)
    )
    training = Training(stack, points, index, config, member_generators(1, (0,), MEMBERS, ORDER))
    for m, twin in enumerate(twins):
        close(stack.member_state(m), twin.state_dict())
    for _ in training.epochs():
        pass
    train_loop(twins, points, index, config, lr, decay, member_generators(1, (0,), MEMBERS, ORDER))
    every = torch.arange(POOL).expand(MEMBERS, -1)
    logits = training.predict(points, every)
    inputs: Any = points.gather(every)
    for m, twin in enumerate(twins):
        close(stack.member_state(m), twin.state_dict())
        torch.testing.assert_close(logits[m], twin.eval()(inputs[m]).detach())


@pytest.mark.parametrize(("task", "count"), [("cifar10", 2_748_890), ("nci1", 24_204), ("ag_news", 7_225_988)])
def test_parameters_as_published(task: str, count: int) -> None:
    assert sum(p.numel() for p in get_task(task).member(None).parameters()) == count
    with torch.device("meta"):
        assert sum(p.numel() for p in get_task(task).stacked(3).parameters()) == 3 * count


def test_parameters_of_a_batch_ensemble() -> None:
    """By hand, WRN-16-4 of 4 members: 2,748,890 less 3,616 of batch norms and 10 biases are shared; a member's own are
    r (2,019), s and biases (2,266 each) and the batch norms.
    """
    task = get_task("cifar10")
    assert task.batch_ensemble is not None
    shared = own = 0
    for module in task.member(None).modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            shared += module.weight.numel()
            own += module.weight.shape[1] + 2 * module.weight.shape[0]
        elif isinstance(module, nn.BatchNorm2d):
            own += 2 * module.num_features
    for ensembles in (1, 3):
        with torch.device("meta"):
            counts = count_parameters(task.batch_ensemble(ensembles, 4))
        assert counts == (shared, 4 * own) == (2_745_264, 40_668)


def count_parameters(network: nn.Module) -> tuple[int, int]:
    """Of one of the BatchEnsembles in a network: those that its members share, and those that are their own."""
    layers = [layer for _, layer in named_layers(network)]
    shared = sum(layer.weight.numel() for layer in layers)
    total = sum(parameter.numel() for parameter in network.parameters())
    return shared // layers[0].ensembles, (total - shared) // layers[0].ensembles


def test_a_batch_ensemble_has_as_many_hidden_layers_as_its_task() -> None:
    task = get_task("covertype")
    assert task.with_layers is not None and task.batch_ensemble is not None
    four = task.with_layers(4).batch_ensemble
    assert four is not None
    with torch.device("meta"):
        shared = [count_parameters(network(1, 8))[0] for network in (task.batch_ensemble, four)]
    assert shared == [1024 * (54 + 1024 * hidden + 7) for hidden in (2, 3)]


def test_four_hidden_layers_have_the_papers_codes_count() -> None:
    assert sum(p.numel() for p in MLP(54, (1024,) * 4, 7).parameters()) == 3_216_391


class PyGTwin(nn.Module):
    """The GCN as PyG's users write it."""

    def __init__(self, ours: GCN) -> None:
        super().__init__()
        self.norms: Any = ours.norms
        self.linears: Any = ours.linears
        self.convs: Any = nn.ModuleList(GCNConv(8, 8) for _ in range(CONVOLUTIONS)).double()
        for conv, linear in zip(list[Any](self.convs), list[Any](ours.linears)[1:], strict=False):
            conv.lin.weight.data.copy_(linear.weight)
            conv.bias.data.copy_(linear.bias)

    def forward(self, data: Any) -> torch.Tensor:
        x = F.relu(self.linears[0](self.norms[0](data.x)))
        for norm, conv in zip(list[Any](self.norms)[1:], self.convs, strict=False):
            x = F.relu(conv(norm(x), data.edge_index))
        x = F.relu(self.linears[-2](self.norms[-2](global_add_pool(x, data.batch))))
        logits: torch.Tensor = self.linears[-1](self.norms[-1](x))
        return logits


def test_the_gcn_equals_pygs() -> None:
    flat, data = random_graphs()
    ours = GCN(5, 8, 3, torch.Generator().manual_seed(0)).double()
    theirs = PyGTwin(copy.deepcopy(ours))
    index = torch.tensor([[4, 9, 0, 30, 17, 9]])
    batch = Batch.from_data_list([data[i] for i in index[0].tolist()])
    torch.testing.assert_close(ours(flat.gather(index)[0]), theirs(batch))


@pytest.mark.parametrize("name", CASES)
def test_gradients_in_float32_are_those_in_float64(name: str) -> None:
    """Equivalence is tested in float64, and in float32 some products have kernels of their own."""
    found = {}
    for dtype in (torch.float32, torch.float64):
        points = CASES[name].points()
        if isinstance(points, TensorPoints):
            points = replace(points, inputs=points.inputs.to(dtype))
        network = CASES[name].member(torch.Generator().manual_seed(0)).to(dtype)
        logits = call_member(network, points.gather(torch.arange(BATCH).unsqueeze(0))[0])
        grads = torch.autograd.grad(F.cross_entropy(logits, points.labels[:BATCH]), [*network.parameters()])
        found[dtype] = [logits.double(), *(grad.double() for grad in grads)]
    for single, double in zip(*found.values(), strict=True):
        torch.testing.assert_close(single, double, rtol=1e-3, atol=1e-4)


def test_graphs_by_index_equal_graphs_chosen_beforehand() -> None:
    flat, _ = random_graphs()
    chosen = torch.tensor([5, 3, 39, 0, 11, 12])
    part = flat.subset(chosen)
    network = GCN(5, 8, 3, torch.Generator().manual_seed(0)).double().eval()
    torch.testing.assert_close(
        network(part.gather(torch.arange(6).unsqueeze(0))[0]), network(flat.gather(chosen.unsqueeze(0))[0])
    )
    assert torch.equal(part.labels, flat.labels[chosen])


@pytest.mark.parametrize("way", ["ordinary", "stacked"])
def test_a_texts_prediction_does_not_depend_on_its_batch(way: str) -> None:
    points = texts()
    member = BiLSTM(20, 6, 5, 3, torch.Generator().manual_seed(0)).double().eval()
    if way == "ordinary":
        outputs = [member(points.gather(torch.tensor([index]))[0])[0] for index in ([0], [0, 1, 2, 3, 4, 5])]
    else:
        stack = StackedBiLSTM(1, 20, 6, 5, 3).double().eval()
        stack.load_state_dict({name: value.unsqueeze(0) for name, value in member.state_dict().items()})
        outputs = [stack(points.gather(torch.tensor([index])))[0, 0] for index in ([0], [0, 1, 2, 3, 4, 5])]
    torch.testing.assert_close(outputs[0], outputs[1])


@pytest.mark.parametrize("name", CASES)
def test_a_step_never_waits_for_a_device(name: str) -> None:
    """Operations that make the host wait for a GPU are forbidden while a batched stack takes a step, by torch's
    operations alone, as on a GPU.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    class NoWaiting(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            waits = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "equal.default")
            assert not any(word in str(func) for word in waits), f"{func} waits for the device"
            return func(*args, **(kwargs or {}))

    case = CASES[name]
    stack = BatchedStack(case.stacked(MEMBERS), members_of(case), OptimizerConfig("sgd", [0.1] * 3, [0.0] * 3), CPU)
    index = torch.arange(3 * BATCH).view(3, -1)
    points = case.points()
    inputs, labels = points.gather(index), points.labels[index]
    with torch_only():
        stack.step(inputs, labels, BATCH)
        with NoWaiting():  # type: ignore[no-untyped-call]
            stack.step(inputs, labels, BATCH)


@pytest.mark.parametrize("name", CASES)
def test_mixed_precision_stays_close(name: str) -> None:
    case = CASES[name]
    config = OptimizerConfig("sgd", [0.05] * 3, [1e-3] * 3)
    members = [case.member(g) for g in member_generators(1, (0,), MEMBERS, INIT)]
    exact = BatchedStack(case.stacked(MEMBERS), members, config, CPU)
    mixed = BatchedStack(case.stacked(MEMBERS), members, config, CPU, "bfloat16")
    index = torch.arange(3 * BATCH).view(3, -1)
    points = case.points()
    inputs: Any = points.gather(index)
    inputs = inputs.float() if isinstance(inputs, torch.Tensor) else inputs
    nll = [stack.step(inputs, points.labels[index], BATCH) for stack in (exact, mixed)]
    assert not torch.equal(nll[0], nll[1])
    torch.testing.assert_close(nll[0], nll[1], rtol=0.1, atol=0.1)
    assert mixed.logits(inputs).dtype == torch.float32
    assert all(p.dtype == torch.float32 for p in mixed.network.parameters())

"""The contests: the same training epoch of the same members, as a plain loop and as a stack."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ensgap.bench.loop import PlainBiLSTM, PlainWideResNet, plain_optimizer, train_loop
from ensgap.graphs import GraphPoints
from ensgap.networks.gcn import GCN
from ensgap.points import Points
from ensgap.seeds import INIT, ORDER, member_generators
from ensgap.stack import OptimizerConfig
from ensgap.stack.products import leaves_torch, matmul_t, torch_only
from ensgap.tasks import get_task
from ensgap.train import Training

Job = Callable[[], None]
CPU = torch.device("cpu")
PLAIN: dict[str, Callable[[Any], nn.Module]] = {"ag_news": PlainBiLSTM, "cifar10": PlainWideResNet}
"""Where a member's own form is already made for speed."""


@dataclass(frozen=True)
class Contest:
    """A task, how many members and replicates, how many points of its pool, and the ratio to reach."""

    task: str
    members: int
    replicates: int
    points: int
    target: float


@dataclass(frozen=True)
class Outcome:
    """Seconds of an epoch, in turn, and the floating-point work of its matrix products."""

    contest: Contest
    loop: float
    stack: float
    ratio: float
    gflop: float

    @property
    def gflops(self) -> float:
        """Billions of floating-point operations a second of the stack."""
        return self.gflop / self.stack


def run(contest: Contest, pool: Points, rounds: int) -> Outcome:
    """Both contenders once to warm up, then in turn; the ratio is the median over the rounds."""
    loop, stack = jobs(contest, pool)
    loop()
    gflop = _work(stack)
    times = [(_seconds(loop), _seconds(stack)) for _ in range(rounds)]
    slow, fast = (statistics.median(column) for column in zip(*times, strict=True))
    return Outcome(contest, slow, fast, statistics.median(a / b for a, b in times), gflop)


def jobs(contest: Contest, pool: Points) -> tuple[Job, Job]:
    """One epoch as a loop, and as a stack by the way that is chosen on this device."""
    task = get_task(contest.task)
    config, stack = replace(task.defaults.train, epochs=1), contest.members * contest.replicates
    replicates = range(contest.replicates)
    optimizer = OptimizerConfig(config.optimizer, [config.lr] * stack, [1e-4] * stack)
    index = torch.arange(len(pool)).expand(stack, -1)
    prepare = task.prepare(pool, index)
    plain: list[Any] = [task.member(g) for g in member_generators(0, replicates, contest.members, INIT)]
    if contest.task in PLAIN:
        plain = [PLAIN[contest.task](member) for member in plain]
    orders = member_generators(0, replicates, contest.members, ORDER)
    training = Training(
        task.stack(member_generators(0, replicates, contest.members, INIT), optimizer, CPU),
        pool,
        index,
        config,
        orders,
        prepare,
    )

    def stacked() -> None:
        training.epoch = 0
        next(training.epochs())

    if isinstance(pool, GraphPoints):
        return _pyg_loop(plain, pool, config), stacked
    one = [task.prepare(pool, row.unsqueeze(0)) for row in index[:1]] * stack

    def loop() -> None:
        for m, network in enumerate(plain):
            train_loop([network], pool, index[:1], config, optimizer.lr, optimizer.weight_decay, orders[m:], one[m])

    return loop, stacked


class _PyGNetwork(nn.Module):
    """The GCN as PyG's users write it."""

    def __init__(self, ours: GCN) -> None:
        from torch_geometric.nn import GCNConv

        super().__init__()
        self.norms, self.linears = ours.norms, ours.linears
        middle = list(ours.linears)[1:-2]
        self.convs: Any = nn.ModuleList(GCNConv(linear.in_features, linear.out_features) for linear in middle)

    def forward(self, data: Any) -> Tensor:
        from torch_geometric.nn import global_add_pool

        x = self.linears[0](self.norms[0](data.x)).relu()
        for norm, conv in zip(list(self.norms)[1:], self.convs, strict=False):
            x = conv(norm(x), data.edge_index).relu()
        x = self.linears[-2](self.norms[-2](global_add_pool(x, data.batch))).relu()
        logits: Tensor = self.linears[-1](self.norms[-1](x))
        return logits


def _pyg_loop(members: Sequence[Any], pool: GraphPoints, config: Any) -> Job:
    from torch_geometric.data import Data
    from torch_geometric.loader import DataLoader

    graphs = []
    for i in range(len(pool)):
        batch = pool.gather(torch.tensor([[i]]))
        nodes = len(batch.node_labels)
        degrees = torch.diff(batch.row_starts, append=torch.tensor([len(batch.neighbours)]))
        rows = torch.repeat_interleave(torch.arange(nodes), degrees)
        edges = torch.stack([rows, batch.neighbours])[:, rows != batch.neighbours]
        x = nn.functional.one_hot(batch.node_labels, members[0].labels).float()
        graphs.append(Data(x=x, edge_index=edges, y=pool.labels[i : i + 1]))
    networks = [_PyGNetwork(member) for member in members]

    def loop() -> None:
        for network in networks:
            optimizer = plain_optimizer(network, config, config.lr, 1e-4)
            network.train()
            for data in DataLoader(graphs, batch_size=config.batch_size, shuffle=True):
                loss = nn.functional.cross_entropy(network(data), data.y, reduction="sum")
                optimizer.zero_grad()
                (loss / config.batch_size).backward()
                optimizer.step()

    return loop


def matmul_peak() -> float:
    """Billions of operations a second of a large matrix product by the faster library, on the threads in use."""
    a = torch.randn(1536, 1536)
    ways = [lambda: torch.mm(a, a), *([lambda: matmul_t(a, a)] if leaves_torch(a) else [])]
    seconds = min(_seconds(way) for way in ways for _ in range(8))
    return float(2 * 1536**3 / seconds / 1e9)


def _work(job: Job) -> float:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, torch_only():
        job()
    return float(counter.get_total_flops() / 1e9)


def _seconds(job: Callable[[], Any]) -> float:
    started = time.perf_counter()
    job()
    return time.perf_counter() - started

"""`make bench`: training epochs of a stack against the same epochs in a plain loop, on one thread, in turn."""

import argparse
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table

from ensgap.bench.loop import PlainMLP, train_loop
from ensgap.search.session import WORKER_ENVIRONMENT
from ensgap.seeds import INIT, ORDER, member_generators
from ensgap.tasks import get_task
from ensgap.tasks.task import Task, TaskData
from ensgap.train import Training

SHAPES = ((4, 1), (8, 1), (32, 1), (8, 5))  # members, replicates


def seconds_of(job: Callable[[], None]) -> float:
    """How long it takes once."""
    started = time.perf_counter()
    job()
    return time.perf_counter() - started


def digits_jobs(
    task: Task, data: TaskData, members: int, replicates: int
) -> tuple[Callable[[], None], Callable[[], None]]:
    """The same training of the same members: as a loop, and as a stack."""
    config, stack = task.train, members * replicates
    index = torch.arange(len(data.pool)).expand(stack, -1)
    lr, weight_decay = [config.lr] * stack, [1e-3] * stack
    networks = [PlainMLP(64, (128, 128), 10) for _ in range(stack)]
    network = task.network(member_generators(0, range(replicates), members, INIT))
    orders = member_generators(0, range(replicates), members, ORDER)
    training = Training(network, data.pool, index, config, torch.tensor(lr), torch.tensor(weight_decay), orders)
    short = type(config)(**{**vars(config), "epochs": 1})

    def loop() -> None:
        train_loop(networks, data.pool, index, short, lr, weight_decay, orders)

    def stacked() -> None:
        training.epoch = 0
        next(training.epochs())

    return loop, stacked


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m ensgap.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="rounds of which the median counts (default: 7)")
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    task = get_task("digits")
    data = task.load(None)
    table = Table(
        title="Training epochs on digits: a plain loop against the stack (1 thread, median of rounds, in turn)"
    )
    for title in ("members × replicates", "loop, ms an epoch", "stack, ms an epoch", "stack is faster by"):
        table.add_column(title, justify="right")
    for members, replicates in SHAPES:
        loop, stacked = digits_jobs(task, data, members, replicates)
        loop(), stacked()  # warm
        times = [(seconds_of(loop), seconds_of(stacked)) for _ in range(rounds)]
        slow, fast = (statistics.median(column) for column in zip(*times, strict=True))
        ratio = statistics.median(a / b for a, b in times)
        table.add_row(f"{members} × {replicates}", f"{slow * 1e3:.0f}", f"{fast * 1e3:.0f}", f"{ratio:.1f}×")
    console = Console(width=110)
    console.print(table)
    console.print(f"peak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    if any(name not in os.environ for name in WORKER_ENVIRONMENT):  # read by the C library when a process starts
        os.execve(
            sys.executable, [sys.executable, "-m", "ensgap.bench", *sys.argv[1:]], os.environ | WORKER_ENVIRONMENT
        )
    main()

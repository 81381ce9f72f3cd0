"""`python -m ensgap.bench.vectorize`: which way other people's networks take, and training steps against a plain loop.

Prints a table in Markdown: medians of CPU time on one thread, in turn. The plain loop has a `torch.optim` per member.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from ensgap.bench.zoo import CLASSES, ZOO, Case
from ensgap.search.session import WORKER_ENVIRONMENT
from ensgap.seeds import INIT, member_generators
from ensgap.stack import Kernels, OptimizerConfig, Vectorized, make_member, vectorize_members
from ensgap.stack.products import set_threads
from ensgap.stack.stack import call_member

LR = 0.01
HEADINGS = ("network", "way", "why", "against a plain loop", "if forced to vmap")


def main() -> None:
    """Measure all, or those named, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m ensgap.bench.vectorize", description=__doc__)
    parser.add_argument("--members", type=int, default=8, help="default: 8")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of which the median counts (default: 5)")
    parser.add_argument("--networks", nargs="+", metavar="NAME", default=list(ZOO), help="only these")
    arguments = parser.parse_args()
    set_threads(1)
    print(f"| {' | '.join(HEADINGS)} |")
    print(f"| {' | '.join('---' for _ in HEADINGS)} |")
    for name in arguments.networks:
        made, ratios = compare(ZOO[name], arguments.members, arguments.rounds)
        cells = [f"{ratios[kernels]:.2f}×" if kernels in ratios else "" for kernels in ("auto", "batched")]
        print(f"| {' | '.join((name, made.way, made.why, *cells))} |", flush=True)


def compare(case: Case, members: int, rounds: int) -> tuple[Vectorized, dict[str, float]]:
    """The stack by the way that is chosen, and how many times as fast its steps are; vmap's too, where it is not."""
    generators = [Generator().manual_seed(m) for m in range(members)]
    inputs = [case.batch(case.points, g) for g in generators]
    labels = torch.stack([torch.randint(CLASSES, (case.points,), generator=g) for g in generators])
    made = {kernels: _vectorized(case, members, inputs[0], kernels) for kernels in ("auto", "batched")}
    if made["auto"].way == made["batched"].way:
        del made["batched"]
    together: Any = torch.stack(inputs) if isinstance(inputs[0], Tensor) else inputs
    jobs = {kernels: _steps_of_a_stack(one, together, labels) for kernels, one in made.items()}
    plain = _plain_steps([make_member(case.network, g) for g in generators], inputs, labels)
    for job in (plain, *jobs.values()):
        job()
    repeats = max(1, int(0.3 / _seconds(plain, 1)))
    times = [
        (_seconds(plain, repeats), {kernels: _seconds(job, repeats) for kernels, job in jobs.items()})
        for _ in range(rounds)
    ]
    return made["auto"], {kernels: statistics.median(loop / own[kernels] for loop, own in times) for kernels in jobs}


def _vectorized(case: Case, members: int, example: Any, kernels: Kernels) -> Vectorized:
    generators = member_generators(0, (0,), members, INIT)
    networks = [make_member(case.network, g) for g in generators]
    config = OptimizerConfig("sgd", [LR] * members, [1e-4] * members)
    return vectorize_members(networks, generators, example, config, kernels=kernels, batch_size=case.points)


def _steps_of_a_stack(made: Vectorized, inputs: Any, labels: Tensor) -> Callable[[], Any]:
    return lambda: made.stack.step(inputs, labels, labels.shape[1])


def _plain_steps(networks: Sequence[nn.Module], inputs: Sequence[Any], labels: Tensor) -> Callable[[], None]:
    optimizers = [torch.optim.SGD(network.parameters(), LR, 0.9, weight_decay=1e-4) for network in networks]

    def job() -> None:
        for m, (network, optimizer) in enumerate(zip(networks, optimizers, strict=True)):
            loss = F.cross_entropy(call_member(network, inputs[m]), labels[m])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return job


def _seconds(job: Callable[[], Any], repeats: int) -> float:
    started = time.process_time()
    for _ in range(repeats):
        job()
    return time.process_time() - started


if __name__ == "__main__":
    if any(name not in os.environ for name in WORKER_ENVIRONMENT):  # read by the C library when a process starts
        command = [sys.executable, "-m", "ensgap.bench.vectorize", *sys.argv[1:]]
        os.execve(sys.executable, command, os.environ | WORKER_ENVIRONMENT)
    main()

"""`make bench`: training epochs of a stack against the same epochs in a plain loop, on one thread, in turn."""

import argparse
import json
import os
import resource
import sys
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from ensgap.bench.contest import Contest, Outcome, matmul_peak, run
from ensgap.errors import UserError
from ensgap.search.session import WORKER_ENVIRONMENT
from ensgap.stack.products import blas_kernels, set_threads
from ensgap.tasks import get_task
from ensgap.versions import versions

CONTESTS = (
    Contest("digits", 4, 1, 898, 1.0),
    Contest("digits", 8, 1, 898, 2.5),
    Contest("digits", 32, 1, 898, 3.5),
    Contest("digits", 8, 5, 898, 2.5),
    Contest("nci1", 4, 1, 1024, 2.2),
    Contest("covertype", 8, 1, 2048, 1.1),
    Contest("cifar10", 4, 1, 32, 1.0),
    Contest("ag_news", 8, 1, 128, 1.0),
)


def main() -> None:
    """Run the contests whose data is at hand, print the table and keep it."""
    parser = argparse.ArgumentParser(prog="python -m ensgap.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="5 rounds instead of 15, of which the median counts")
    parser.add_argument("--tasks", nargs="+", metavar="TASK", help="only these tasks")
    parser.add_argument("--data-dir", type=Path, help="where data sets are kept")
    parser.add_argument("--out", type=Path, default=Path("reports/bench.json"), help="default: reports/bench.json")
    arguments = parser.parse_args()
    set_threads(1)
    torch.manual_seed(0)
    peak = matmul_peak()
    outcomes: list[Outcome] = []
    for contest in CONTESTS:
        if arguments.tasks and contest.task not in arguments.tasks:
            continue
        try:
            pool = get_task(contest.task).load(arguments.data_dir).pool
        except UserError as error:
            print(f"{contest.task} is left out: {error}", file=sys.stderr)
            continue
        size = min(contest.points, len(pool))
        chosen = torch.randperm(len(pool), generator=torch.Generator().manual_seed(0))[:size]
        rounds = 3 if contest.task not in ("digits", "nci1") else 5 if arguments.quick else 15
        outcomes.append(run(contest, pool.subset(chosen), rounds))
        print(f"{contest.task}: {outcomes[-1].ratio:.2f}×", file=sys.stderr, flush=True)
    _show(outcomes, peak)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    found = {
        "peak_gflops": peak,
        "blas": blas_kernels(),
        "contests": [asdict(o) | {"gflops": o.gflops} for o in outcomes],
        "versions": versions(),
    }
    arguments.out.write_text(json.dumps(found, indent=2) + "\n")


def _show(outcomes: list[Outcome], peak: float) -> None:
    table = Table(title="One training epoch: a plain loop against the stack (one thread, in turn, medians)")
    for title in ("task", "members × replicates", "points", "loop, s", "stack, s", "faster by", "target", "of peak"):
        table.add_column(title, justify="left" if title == "task" else "right")
    for o in outcomes:
        c = o.contest
        numbers = (f"{o.loop:.3f}", f"{o.stack:.3f}", f"{o.ratio:.2f}×", f"{c.target:g}×", f"{o.gflops / peak:.0%}")
        table.add_row(c.task, f"{c.members} × {c.replicates}", str(c.points), *numbers)
    console = Console(width=110)
    console.print(table)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    console.print(f"matrix-multiply peak {peak:.0f} GFLOP/s; peak memory of this process {memory:.0f} MiB")
    console.print(f"SciPy's matrix products, which compiled steps use: {blas_kernels()}")


if __name__ == "__main__":
    if any(name not in os.environ for name in WORKER_ENVIRONMENT):  # read by the C library when a process starts
        os.execve(
            sys.executable, [sys.executable, "-m", "ensgap.bench", *sys.argv[1:]], os.environ | WORKER_ENVIRONMENT
        )
    main()

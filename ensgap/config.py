"""The configuration of a study: one dataclass for the command line and for Python. `None` means: the task's default."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ensgap.errors import UserError
from ensgap.spec import STACKED_REPLICATES
from ensgap.stack import Kernels, Precision


def flag(text: str, default: Any = None, omitted: Any = None) -> Any:
    """A field with a command-line flag, its help and, if its value may be left out, what the bare flag means."""
    return field(default=default, metadata={"help": text, "omitted": omitted})


@dataclass(frozen=True)
class StudyConfig:
    """What all studies have in common."""

    task: str = flag("which task; --list-tasks shows them, or a Python file with a function task()", "digits")
    members: int | None = flag("networks in an ensemble")
    replicates: int | None = flag("ensembles trained for each setting, each from its own seed")
    replicates_per_trial: int | None = flag(
        "replicates trained together in one trial (default: 1 where members are computed in a loop on a CPU, else 5)"
    )
    epochs: int | None = flag("epochs of training; with early stopping, at most")
    lr: float | None = flag("learning rate")
    seed: int = flag("seed of weights, data orders, augmentation and holdouts", 0)
    out: Path | None = flag("the study's folder (default: reports/<study>-<task>)")
    storage: str | None = flag(
        "a shared path or bucket (s3://…) for trials and checkpoints; --out then gets the report"
    )
    cluster: str | None = flag(
        "join a running Ray cluster: host:port, ray://host:port or auto: RAY_ADDRESS, else one on this machine",
        omitted="auto",
    )
    data_dir: Path | None = flag("where data sets are kept")
    cpus_per_trial: int = flag("CPUs, and torch threads, of a trial", 1)
    concurrency: int | None = flag("trials that run at once (default: as many as fit)")
    checkpoint_every: int | None = flag("epochs after which a trial's state is kept (beside every 20 seconds or so)")
    retries: int = flag("times that a trial is tried again after its worker died or it failed", 3)
    resume: bool = flag("continue the study in the folder, keeping every finished trial", False)
    train_fraction: float | None = flag("share of the training pool to use, stratified (default: all of it)")
    test_fraction: float | None = flag("share of the test data to use, stratified (default: all of it)")
    preset: str | None = flag(
        "the task's settings by name: paper has those of the paper, laptop (covertype, ag_news, cifar10) scaled-down "
        "ones for two cores"
    )
    precision: Precision = flag("float32, or bfloat16 for mixed precision", "float32")
    hidden_layers: int | None = flag("hidden layers of the MLP, for covertype (default: 3)")
    hidden_features: int | None = flag(
        "features of a hidden layer of the GCN, for nci1 (default: 64, as the paper prints; its figures fit 128)"
    )
    kernels: Kernels = flag("how members are computed: batched, in a loop, or auto: what is faster here", "auto")
    gpus_per_trial: float | None = flag("share of a GPU that a trial gets (default: 1 where there is one)")
    print_config: bool = flag("print the study's whole configuration and stop", False)
    smoke: bool = flag("a tiny study, to see that everything works", False)
    list_tasks: bool = flag("list the tasks and stop", False)

    def check_ranges(self) -> None:
        """Refuse numbers that make no sense."""
        least = {
            "members": 2,
            "hidden_layers": 1,
            "hidden_features": 1,
            "replicates": 1,
            "replicates_per_trial": 1,
            "epochs": 1,
            "seed": 0,
            "cpus_per_trial": 1,
            "checkpoint_every": 1,
            "retries": 0,
        }
        self.check_at_least(least | {"concurrency": 1})
        if self.lr is not None and not (self.lr > 0 and math.isfinite(self.lr)):
            raise UserError(f"--lr must be a positive number, however: {self.lr:g}.")
        for name in ("train_fraction", "test_fraction"):
            share = getattr(self, name)
            if share is not None and not 0 < share <= 1:
                raise UserError(f"--{name.replace('_', '-')} must be above 0 and at most 1, however: {share:g}.")
        if self.gpus_per_trial is not None and not self.gpus_per_trial >= 0:
            raise UserError(f"--gpus-per-trial must not be negative, however: {self.gpus_per_trial:g}.")

    def check_at_least(self, least: dict[str, int]) -> None:
        """Refuse values below these."""
        for name, minimum in least.items():
            value = getattr(self, name)
            if value is not None and value < minimum:
                raise UserError(f"--{name.replace('_', '-')} must be at least {minimum}, however: {value}.")

    def pick(self, name: str, usual: Any, smoke: dict[str, Any]) -> Any:
        """What the flag says, else what a smoke run has, else the task's own."""
        given = getattr(self, name)
        return given if given is not None else smoke.get(name, usual) if self.smoke else usual

    def in_a_trial(self, loop_on_cpu: bool) -> int:
        """How many replicates a trial trains, unless all of a setting must be together."""
        return self.replicates_per_trial or (1 if loop_on_cpu else STACKED_REPLICATES)

    def folder(self, study: str) -> Path:
        """Where the study goes; one with another network, a scaled-down one and a smoke run stand apart."""
        network = [size for size in (self.hidden_layers, self.hidden_features) if size is not None]
        preset = [self.preset] if self.preset not in (None, "paper") else []
        names = [study, Path(self.task).stem, *network, *preset, *["smoke"] * self.smoke]
        return self.out or Path("reports") / "-".join(map(str, names))

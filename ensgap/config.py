"""The configuration of a study: one dataclass for the command line and for Python. `None` means: the task's default."""

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ensgap.errors import UserError
from ensgap.holdout import Holdout, parse_order
from ensgap.plan import SearchName, StudyPlan
from ensgap.stack import Kernels, Precision
from ensgap.tasks import Task
from ensgap.tasks.task import log_spaced

TPE_SAMPLES = 16
"""How many points Optuna adds to the grid unless --num-samples says otherwise."""
SMOKE = {"members": 2, "replicates": 2, "test_replicates": 2, "epochs": 2, "val_fraction": 0.3}
SMOKE_GRID = (0.0, 1e-3, 1e-2)


def flag(text: str, default: Any = None) -> Any:
    """A field with a command-line flag and its help."""
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class StudyConfig:
    """Search a weight decay: the best for the average member, the best for the ensemble, and the gap between them."""

    task: str = flag("which task; --list-tasks shows them", "digits")
    members: int | None = flag("networks in an ensemble")
    replicates: int | None = flag("ensembles trained for each setting of the search, each from its own seed")
    test_replicates: int | None = flag("ensembles retrained on the whole pool at each of the two optima")
    epochs: int | None = flag("epochs of training")
    lr: float | None = flag("learning rate")
    val_fraction: float | None = flag("share of the pool that each member holds out in the search")
    holdout: str = flag("which points members hold out: shared, overlapping, or an order from 2 to --members", "shared")
    search: SearchName = flag("grid, or the grid's points first and then Optuna's two-objective TPE", "grid")
    num_samples: int | None = flag("how many settings to try; in a grid: 0 and the rest log-spaced over its range")
    grid: tuple[float, ...] | None = flag("the weight decays to try; 0 is always among them")
    seed: int = flag("seed of weights, data orders, augmentation and holdouts", 0)
    out: Path | None = flag("the study's folder (default: reports/<study>-<task>)")
    data_dir: Path | None = flag("where data sets are kept")
    cpus_per_trial: int = flag("CPUs, and torch threads, of a trial", 1)
    concurrency: int | None = flag("trials that run at once (default: as many as fit)")
    resume: bool = flag("continue the study in the folder, keeping every finished trial", False)
    train_fraction: float | None = flag("share of the training pool to use, stratified (default: all of it)")
    preset: str | None = flag("the task's settings by name: paper has those of the paper")
    precision: Precision = flag("float32, or bfloat16 for mixed precision", "float32")
    hidden_layers: int | None = flag("hidden layers of the MLP, for covertype (default: 3)")
    kernels: Kernels = flag("how members are computed: batched, in a loop, or auto: what is faster here", "auto")
    gpus_per_trial: float | None = flag("share of a GPU that a trial gets (default: 1 where there is one)")
    print_config: bool = flag("print the study's whole configuration and stop", False)
    smoke: bool = flag("a tiny study, to see that everything works", False)
    list_tasks: bool = flag("list the tasks and stop", False)

    def plan(self, task: Task, study: str = "weight_decay") -> StudyPlan:
        """The study to run: the task's defaults (or a smoke run's) in the gaps, everything checked."""
        self._check_ranges()
        usual = task.preset(self.preset)
        defaults: dict[str, Any] = SMOKE | {"train_fraction": task.smoke_fraction} if self.smoke else {}

        def pick(name: str, of_task: Any) -> Any:
            given = getattr(self, name)
            return given if given is not None else defaults.get(name, of_task)

        members = pick("members", usual.members)
        order = parse_order(self.holdout, members)
        if order == 1:
            raise UserError(
                "A disjoint holdout (order 1) gives no ensemble NLL to select by, because no point is held out by two "
                "members; choose --holdout shared, overlapping or an order from 2 up."
            )
        grid = self._resolve_grid(SMOKE_GRID if self.smoke else usual.grid)
        return StudyPlan(
            study=study,
            task=task,
            members=members,
            replicates=pick("replicates", usual.replicates),
            test_replicates=pick("test_replicates", usual.test_replicates),
            train=replace(usual.train, epochs=pick("epochs", usual.train.epochs), lr=pick("lr", usual.train.lr)),
            holdout=Holdout(order, pick("val_fraction", usual.val_fraction)),
            search=self.search,
            grid=grid,
            num_samples=self._resolve_samples(grid),
            seed=self.seed,
            train_fraction=pick("train_fraction", 1.0),
            precision=self.precision,
            smoke=self.smoke,
            out=self.out or Path("reports") / f"{study}-{task.name}{'-smoke' if self.smoke else ''}",
        )

    def _check_ranges(self) -> None:
        least = {
            "members": 2,
            "hidden_layers": 1,
            "replicates": 1,
            "test_replicates": 1,
            "epochs": 1,
            "num_samples": 2,
            "seed": 0,
        }
        for name, minimum in (least | {"cpus_per_trial": 1, "concurrency": 1}).items():
            value = getattr(self, name)
            if value is not None and value < minimum:
                raise UserError(f"--{name.replace('_', '-')} must be at least {minimum}, however: {value}.")
        if self.lr is not None and not (self.lr > 0 and math.isfinite(self.lr)):
            raise UserError(f"--lr must be a positive number, however: {self.lr:g}.")
        if self.val_fraction is not None and not 0 < self.val_fraction < 1:
            raise UserError(f"--val-fraction must lie between 0 and 1, however: {self.val_fraction:g}.")
        if self.train_fraction is not None and not 0 < self.train_fraction <= 1:
            raise UserError(f"--train-fraction must be above 0 and at most 1, however: {self.train_fraction:g}.")
        if self.gpus_per_trial is not None and not self.gpus_per_trial >= 0:
            raise UserError(f"--gpus-per-trial must not be negative, however: {self.gpus_per_trial:g}.")

    def _resolve_grid(self, default: tuple[float, ...]) -> tuple[float, ...]:
        if self.grid is not None and self.search == "grid" and self.num_samples is not None:
            raise UserError("--num-samples and --grid both say how many settings a grid has; give one of them.")
        grid = default if self.grid is None else self.grid
        bad = [value for value in grid if not (value >= 0 and math.isfinite(value))]
        if bad:
            raise UserError(f"--grid takes weight decays from 0 up, however: {bad[0]:g}.")
        positive = [value for value in grid if value > 0]
        if not positive:
            raise UserError("--grid needs at least one weight decay above 0 beside the 0 that is always tried.")
        if self.search == "grid" and self.num_samples is not None:
            positive = list(log_spaced(min(positive), max(positive), self.num_samples - 1))
        return (0.0, *sorted(set(positive)))

    def _resolve_samples(self, grid: tuple[float, ...]) -> int:
        if self.search == "grid":
            return len(grid)
        if len(grid) < 3:
            raise UserError("--search optuna looks between weight decays above 0; give --grid at least two of them.")
        if self.num_samples is None:
            return len(grid) + (2 if self.smoke else TPE_SAMPLES)
        if self.num_samples <= len(grid):
            raise UserError(
                f"--num-samples {self.num_samples} leaves Optuna nothing to choose after the {len(grid)} points of the "
                f"grid; ask for more than {len(grid)}, or give a shorter --grid."
            )
        return self.num_samples

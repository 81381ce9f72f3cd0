"""The configuration of a study: one dataclass for the command line and for Python. `None` means: the task's default."""

import math
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from ensgap.errors import UserError
from ensgap.holdout import parse_order
from ensgap.spec import FIRST_TEST_REPLICATE, TrialSpec
from ensgap.tasks import Task

SearchName = Literal["grid", "optuna"]
TPE_SAMPLES = 16
"""How many points Optuna adds to the grid unless --num-samples says otherwise."""


def _flag(text: str, default: Any = None) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class StudyConfig:
    """A search for the weight decay: best for the average member, best for the ensemble, and the gap between the two."""

    task: str = _flag("which task; --list-tasks shows them", "digits")
    members: int | None = _flag("networks in an ensemble")
    replicates: int | None = _flag("ensembles trained for each setting of the search, each from its own seed")
    test_replicates: int | None = _flag("ensembles retrained on the whole pool at each of the two optima")
    epochs: int | None = _flag("epochs of training")
    lr: float | None = _flag("learning rate")
    val_fraction: float | None = _flag("share of the pool that each member holds out in the search")
    holdout: str = _flag("which points members hold out: shared, overlapping, or an order from 2 to --members", "shared")
    search: SearchName = _flag("grid, or the grid's points first and then Optuna's two-objective TPE", "grid")
    num_samples: int | None = _flag("how many settings to try; in a grid: 0 and the rest log-spaced over its range")
    grid: tuple[float, ...] | None = _flag("the weight decays to try; 0 is always among them")
    seed: int = _flag("seed of everything random", 0)
    out: Path | None = _flag("the study's folder (default: reports/<study>-<task>)")
    data_dir: Path | None = _flag("where data sets are kept")
    cpus_per_trial: int = _flag("CPUs, and torch threads, of a trial", 1)
    concurrency: int | None = _flag("trials that run at once (default: as many as fit)")
    resume: bool = _flag("continue the study in the folder, keeping every finished trial", False)
    smoke: bool = _flag("a tiny study, to see that everything works", False)
    list_tasks: bool = _flag("list the tasks and stop", False)

    study: str = field(default="weight_decay", init=False)

    def resolved(self, task: Task) -> "StudyConfig":
        """With the task's defaults (or a smoke run's) in the gaps, and checked."""
        defaults: dict[str, Any] = {
            "members": task.members,
            "replicates": task.replicates,
            "test_replicates": task.test_replicates,
            "epochs": task.train.epochs,
            "lr": task.train.lr,
            "val_fraction": task.val_fraction,
            "out": Path("reports") / f"{self.study}-{task.name}",
        }
        if self.smoke:
            defaults |= {"members": 2, "replicates": 2, "test_replicates": 2, "epochs": 2}
            defaults["out"] = defaults["out"].with_name(defaults["out"].name + "-smoke")
        full = replace(self, **{name: value for name, value in defaults.items() if getattr(self, name) is None})
        full._check()
        grid = full._resolved_grid((0.0, 1e-3, 1e-2) if self.smoke else task.grid)
        samples = full.num_samples
        if full.search == "optuna":
            samples = len(grid) + (2 if self.smoke else TPE_SAMPLES) if samples is None else samples
            if samples <= len(grid):
                raise UserError(
                    f"--num-samples {samples} leaves Optuna nothing to choose after the {len(grid)} points of the grid; "
                    f"ask for more than {len(grid)} or give a shorter --grid."
                )
        return replace(full, grid=grid, num_samples=samples)

    def _check(self) -> None:
        for name in ("members", "replicates", "test_replicates", "epochs", "num_samples", "cpus_per_trial", "concurrency"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"--{name.replace('_', '-')} must be at least 1, however: {value}.")
        if self.members is not None and self.members < 2:
            raise UserError("An ensemble needs at least two members, however: --members 1.")
        if self.lr is not None and not (self.lr > 0 and math.isfinite(self.lr)):
            raise UserError(f"--lr must be a positive number, however: {self.lr:g}.")
        if self.val_fraction is not None and not 0 < self.val_fraction < 1:
            raise UserError(f"--val-fraction must lie between 0 and 1, however: {self.val_fraction:g}.")
        if self.seed < 0:
            raise UserError(f"--seed must not be negative, however: {self.seed}.")
        if self.members is not None and parse_order(self.holdout, self.members) == 1:
            raise UserError(
                "A disjoint holdout (order 1) gives no ensemble NLL to select by, because no point is held out by two "
                "members; choose --holdout shared, overlapping or an order from 2 up."
            )

    def _resolved_grid(self, default: tuple[float, ...]) -> tuple[float, ...]:
        if self.grid is not None and self.search == "grid" and self.num_samples is not None:
            raise UserError("--num-samples and --grid both say how many settings a grid has; give one of them.")
        grid = default if self.grid is None else self.grid
        bad = [value for value in grid if not (value >= 0 and math.isfinite(value))]
        if bad:
            raise UserError(f"--grid takes weight decays from 0 up, however: {bad[0]:g}.")
        if not any(value > 0 for value in grid):
            raise UserError("--grid needs at least one weight decay above 0 beside the 0 that is always tried.")
        if self.search == "grid" and self.num_samples is not None:
            if self.num_samples < 2:
                raise UserError("A grid needs --num-samples of at least 2: 0 and one weight decay above it.")
            grid = (0.0, *log_spaced(min(v for v in grid if v > 0), max(grid), self.num_samples - 1))
        return tuple(sorted({0.0, *grid}))

    def trial(self, task: Task, weight_decay: float) -> TrialSpec:
        """The search trial of a weight decay (of a resolved configuration)."""
        assert self.members and self.replicates and self.epochs and self.lr and self.val_fraction
        return TrialSpec(
            task=task.name,
            phase="search",
            setting={"weight_decay": weight_decay},
            members=self.members,
            replicates=tuple(range(self.replicates)),
            seed=self.seed,
            train=replace(task.train, epochs=self.epochs, lr=self.lr),
            order=parse_order(self.holdout, self.members),
            val_fraction=self.val_fraction,
        )

    def test_trials(self, task: Task, weight_decay: float) -> list[TrialSpec]:
        """The trials that retrain a weight decay on the whole pool: as many replicates at once as in the search, so that
        what fitted into memory there fits here."""
        assert self.replicates and self.test_replicates
        ids = range(FIRST_TEST_REPLICATE, FIRST_TEST_REPLICATE + self.test_replicates)
        groups = [tuple(ids[i : i + self.replicates]) for i in range(0, len(ids), self.replicates)]
        spec = replace(self.trial(task, weight_decay), phase="test", order=None, val_fraction=None)
        return [replace(spec, replicates=group) for group in groups]

    def to_json(self) -> dict[str, Any]:
        """For study.json."""
        content = asdict(self)
        return {name: str(value) if isinstance(value, Path) else value for name, value in content.items()}


MAY_CHANGE = {"out", "data_dir", "cpus_per_trial", "concurrency", "resume", "list_tasks", "grid", "num_samples", "test_replicates"}
"""What may differ between a study and its continuation; everything else would change figures it already has."""


def check_same_study(config: StudyConfig, recorded: dict[str, Any]) -> None:
    """Refuse to continue a study with another configuration, naming what differs."""
    now = config.to_json()
    for name in (f.name for f in fields(config)):
        if name not in MAY_CHANGE and recorded.get(name) != now[name]:
            raise UserError(
                f"The study in {config.out} was run with --{name.replace('_', '-')} {recorded.get(name)}, not {now[name]}; "
                "repeat that with --resume, or choose another --out."
            )


def log_spaced(low: float, high: float, count: int) -> tuple[float, ...]:
    """`count` values from low to high, evenly in the logarithm, to four digits."""
    if count == 1:
        return (low,)
    step = (math.log(high) - math.log(low)) / (count - 1)
    return tuple(float(f"{math.exp(math.log(low) + i * step):.4g}") for i in range(count))

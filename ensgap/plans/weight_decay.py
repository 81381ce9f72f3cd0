"""The weight-decay study: its configuration, and its plan with every gap filled and the trials that it takes."""

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from ensgap.config import StudyConfig, flag
from ensgap.errors import UserError
from ensgap.holdout import Holdout, parse_order
from ensgap.losses import Objective, check_objective
from ensgap.spec import FIRST_TEST_REPLICATE, TrialSpec
from ensgap.stack import Precision
from ensgap.tasks import Task
from ensgap.tasks.task import log_spaced
from ensgap.train import TrainConfig

SearchName = Literal["grid", "optuna"]
TPE_SAMPLES = 16
"""How many points Optuna adds to the grid unless --num-samples says otherwise."""
SMOKE = {"members": 2, "replicates": 2, "test_replicates": 2, "epochs": 2, "val_fraction": 0.3}
SMOKE_GRID = (0.0, 1e-3, 1e-2)


@dataclass(frozen=True)
class WeightDecayPlan:
    """Everything that decides the study's figures, and where they go."""

    may_change: ClassVar[tuple[str, ...]] = ("out", "grid", "num_samples", "test_replicates", "objective")
    study: str
    task: Task
    members: int
    replicates: int
    test_replicates: int
    train: TrainConfig
    holdout: Holdout
    search: SearchName
    grid: tuple[float, ...]
    num_samples: int
    objective: Objective  # decides what is selected and tested, not what is trained
    seed: int
    train_fraction: float
    precision: Precision
    smoke: bool
    out: Path

    def search_trial(self, weight_decay: float) -> TrialSpec:
        """The trial that trains a weight decay beside a holdout."""
        return TrialSpec(
            task=self.task.name,
            phase="search",
            setting={"weight_decay": weight_decay},
            members=self.members,
            replicates=tuple(range(self.replicates)),
            seed=self.seed,
            train=self.train,
            holdout=self.holdout,
            train_fraction=self.train_fraction,
            precision=self.precision,
        )

    def test_trials(self, weight_decay: float) -> list[TrialSpec]:
        """The trials that retrain a weight decay on the whole pool: as many replicates at once as in the search, so
        that what fitted into memory there fits here.
        """
        ids = range(FIRST_TEST_REPLICATE, FIRST_TEST_REPLICATE + self.test_replicates)
        groups = [tuple(ids[i : i + self.replicates]) for i in range(0, len(ids), self.replicates)]
        spec = replace(self.search_trial(weight_decay), phase="test", holdout=None)
        return [replace(spec, replicates=group) for group in groups]

    def to_json(self) -> dict[str, Any]:
        """For study.json: one level, under the names of the flags."""
        flat = {name: value for name, value in self.__dict__.items() if name not in ("train", "holdout")}
        holdout = {"holdout": self.holdout.order, "val_fraction": self.holdout.fraction}
        return (
            flat | asdict(self.train) | holdout | {"task": self.task.name, "out": str(self.out), "grid": [*self.grid]}
        )


@dataclass(frozen=True)
class WeightDecayConfig(StudyConfig):
    """Search a weight decay: the best for the average member, the best for the ensemble, and the gap between them."""

    test_replicates: int | None = flag("ensembles retrained on the whole pool at each of the two optima")
    val_fraction: float | None = flag("share of the pool that each member holds out in the search")
    holdout: str = flag("which points members hold out: shared, overlapping, or an order from 2 to --members", "shared")
    search: SearchName = flag("grid, or the grid's points first and then Optuna's two-objective TPE", "grid")
    num_samples: int | None = flag("how many settings to try; in a grid: 0 and the rest log-spaced over its range")
    grid: tuple[float, ...] | None = flag("the weight decays to try; 0 is always among them")
    objective: Objective = flag("validation metric that the two optima minimise; rmse is for regressions", "nll")

    def plan(self, task: Task) -> WeightDecayPlan:
        """The study to run: the task's defaults (or a smoke run's) in the gaps, everything checked."""
        self.check_ranges()
        check_objective(self.objective, task.loss)
        usual = task.preset(self.preset)

        def pick(name: str, of_task: Any) -> Any:
            return self.pick(name, of_task, SMOKE | {"train_fraction": task.smoke_fraction})

        members = pick("members", usual.members)
        order = parse_order(self.holdout, members)
        if order == 1:
            raise UserError(
                "A disjoint holdout (order 1) gives no ensemble NLL to select by, because no point is held out by two "
                "members; choose --holdout shared, overlapping or an order from 2 up."
            )
        grid = self._resolve_grid(SMOKE_GRID if self.smoke else usual.grid)
        return WeightDecayPlan(
            study="weight_decay",
            task=task,
            members=members,
            replicates=pick("replicates", usual.replicates),
            test_replicates=pick("test_replicates", usual.test_replicates),
            train=replace(usual.train, epochs=pick("epochs", usual.train.epochs), lr=pick("lr", usual.train.lr)),
            holdout=Holdout(order, pick("val_fraction", usual.val_fraction)),
            search=self.search,
            grid=grid,
            num_samples=self._resolve_samples(grid),
            objective=self.objective,
            seed=self.seed,
            train_fraction=pick("train_fraction", 1.0),
            precision=self.precision,
            smoke=self.smoke,
            out=self.folder("weight_decay"),
        )

    def check_ranges(self) -> None:
        """Refuse numbers that make no sense."""
        super().check_ranges()
        self.check_at_least({"test_replicates": 1, "num_samples": 2})
        if self.val_fraction is not None and not 0 < self.val_fraction < 1:
            raise UserError(f"--val-fraction must lie between 0 and 1, however: {self.val_fraction:g}.")

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

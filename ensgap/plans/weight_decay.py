"""The weight-decay study as asked for, checked: which weight decays it tries, and which trials it takes."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ensgap.config import flag
from ensgap.errors import UserError
from ensgap.hyperparameters import Setting
from ensgap.plans.optima import SearchPlan, SearchStudyConfig
from ensgap.tasks import Task
from ensgap.tasks.task import log_spaced

TPE_SAMPLES = 16
"""How many points Optuna adds to the grid unless --num-samples says otherwise."""
SMOKE_GRID = (0.0, 1e-3, 1e-2)


@dataclass(frozen=True)
class WeightDecayPlan(SearchPlan):
    """A search over weight decays."""

    grid: tuple[float, ...]
    also_test: tuple[float, ...]

    @property
    def may_change(self) -> tuple[str, ...]:
        """What a continuation may change."""
        return ("grid", "also_test", "as_paper", *super().may_change)

    def settings_to_test(self) -> list[Setting]:
        """The weight decays that are retrained and tested in any case."""
        return [{"weight_decay": value} for value in self.also_test]

    def to_json(self) -> dict[str, Any]:
        """For study.json."""
        found = super().to_json() | {"grid": [*self.grid], "also_test": [*self.also_test]}
        return found | {"as_paper": repeats_paper(self.task, found)}


def repeats_paper(task: Task, config: Mapping[str, Any]) -> bool:
    """Whether a study that was recorded so repeats the paper's experiment at full size, so that its figures may be
    compared; with any grid and number of replicates.
    """
    paper = task.presets.get("paper")
    if paper is None:
        return False
    usual = asdict(paper.train) | {
        "study": "weight_decay",
        "members": paper.members,
        "holdout": paper.members,
        "val_fraction": paper.val_fraction,
        "objective": "nll",
        "train_fraction": 1.0,
        "smoke": False,
    }
    return all(config[name] == value for name, value in usual.items())


@dataclass(frozen=True)
class WeightDecayConfig(SearchStudyConfig):
    """Search a weight decay: the best for the average member, the best for the ensemble, and the gap between them."""

    search: Literal["grid", "optuna"] = flag(
        "grid, or the grid's points first and then Optuna's two-objective TPE", "grid"
    )
    num_samples: int | None = flag("how many settings to try; in a grid: 0 and the rest log-spaced over its range")
    grid: tuple[float, ...] | None = flag("the weight decays to try; 0 is always among them")
    also_test: tuple[float, ...] | None = flag("weight decays to retrain and test beside the two optima, such as 0")

    def plan(self, task: Task) -> WeightDecayPlan:
        """The study to run."""
        common = self.common("weight_decay", task)
        grid = self._resolve_grid(SMOKE_GRID if self.smoke else task.preset(self.preset).grid)
        return WeightDecayPlan(
            **common,
            search=self.search,
            replicates_per_trial=self.in_one_trial(self.search, common["replicates"], task),
            grid=grid,
            also_test=tuple(sorted(set(self.also_test or ()))),
            num_samples=self._resolve_samples(grid),
        )

    def check_ranges(self) -> None:
        """Refuse numbers that make no sense."""
        super().check_ranges()
        if self.optuna_storage is not None and self.search != "optuna":
            raise UserError("--optuna-storage is where --search optuna keeps its trials; give both, or neither.")

    def _resolve_grid(self, default: tuple[float, ...]) -> tuple[float, ...]:
        if self.grid is not None and self.search == "grid" and self.num_samples is not None:
            raise UserError("--num-samples and --grid both say how many settings a grid has; give one of them.")
        grid = default if self.grid is None else self.grid
        for flag_name, values in (("--grid", grid), ("--also-test", self.also_test or ())):
            bad = [value for value in values if not (value >= 0 and math.isfinite(value))]
            if bad:
                raise UserError(f"{flag_name} takes weight decays from 0 up, however: {bad[0]:g}.")
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

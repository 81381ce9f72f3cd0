"""Tuning any hyperparameters of any task: the configuration, and the plan with every gap filled."""

from dataclasses import dataclass
from typing import Any

from ensgap import space as spaces
from ensgap.config import flag
from ensgap.errors import UserError
from ensgap.plans.optima import SearchName, SearchPlan, SearchStudyConfig
from ensgap.space import Space
from ensgap.tasks import Task

SAMPLES, SMOKE_SAMPLES = 30, 4


@dataclass(frozen=True)
class TunePlan(SearchPlan):
    """A search over any space."""

    space: Space

    @property
    def may_change(self) -> tuple[str, ...]:
        """What a continuation may change."""
        return ("space", "search", *super().may_change)

    def to_json(self) -> dict[str, Any]:
        """For study.json."""
        return super().to_json() | {"space": spaces.in_json(self.space)}


@dataclass(frozen=True)
class TuneConfig(SearchStudyConfig):
    """Search any space: the best setting for the average member, the best for the ensemble, and the gap between."""

    space: Any = flag("the search space")
    search: SearchName = flag("optuna (two-objective TPE), random, or grid", "optuna")

    def plan(self, task: Task) -> TunePlan:
        """The study to run."""
        common = self.common("tune", task)
        spaces.check(self.space)
        samples = self.num_samples or (SMOKE_SAMPLES if self.smoke else SAMPLES)
        if self.search == "grid":
            samples = len(spaces.grid_of(self.space, samples))
        elif self.search in ("optuna", "random"):
            samples = int(min(samples, spaces.size_of(self.space)))
        else:
            raise UserError(f"--search is optuna, random or grid, however: {self.search}.")
        together = self.in_one_trial(self.search, common["replicates"], common["task"])
        return TunePlan(
            **common, search=self.search, replicates_per_trial=together, num_samples=samples, space=self.space
        )

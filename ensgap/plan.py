"""A study as it will be run: a configuration with every gap filled, and the trials that it takes."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ensgap.errors import UserError
from ensgap.holdout import Holdout
from ensgap.spec import FIRST_TEST_REPLICATE, TrialSpec
from ensgap.stack import Precision
from ensgap.tasks import Task
from ensgap.train import TrainConfig

SearchName = Literal["grid", "optuna"]
MAY_CHANGE = ("out", "grid", "num_samples", "test_replicates")
"""What may differ between a study and its continuation; anything else would change figures it already has."""


@dataclass(frozen=True)
class StudyPlan:
    """Everything that decides a study's figures, and where they go."""

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

    def check_continues(self, recorded: dict[str, Any]) -> None:
        """Refuse to continue a study with another configuration, naming what differs."""
        for name, value in self.to_json().items():
            if name not in MAY_CHANGE and recorded.get(name) != value:
                raise UserError(
                    f"The study in {self.out} was run with {name.replace('_', ' ')} {recorded.get(name)}, not {value}; "
                    "repeat its flags with --resume, or choose another --out."
                )

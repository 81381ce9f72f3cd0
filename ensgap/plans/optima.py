"""What the plans of studies that look for both optima have in common: search beside a holdout, retrain, test."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ensgap.config import StudyConfig, flag
from ensgap.errors import UserError
from ensgap.holdout import Holdout, parse_order
from ensgap.hyperparameters import Setting
from ensgap.losses import Objective, check_objective
from ensgap.plans.plan import scaled_down
from ensgap.secrets import mask
from ensgap.spec import FIRST_TEST_REPLICATE, TrialSpec, in_trials
from ensgap.stack import Precision
from ensgap.tasks import Task
from ensgap.train import TrainConfig

SearchName = Literal["grid", "optuna", "random"]
SMOKE = {"members": 2, "replicates": 2, "test_replicates": 2, "epochs": 2, "val_fraction": 0.3}


@dataclass(frozen=True)
class SearchPlan:
    """Everything that decides the study's figures, and where they go."""

    study: str
    task: Task
    members: int
    replicates: int
    replicates_per_trial: int
    test_replicates: int
    train: TrainConfig
    holdout: Holdout
    search: SearchName
    num_samples: int
    objective: Objective  # decides what is selected and tested, not what is trained
    seed: int
    train_fraction: float
    test_fraction: float
    precision: Precision
    smoke: bool
    out: Path
    optuna_storage: str | None  # with its password
    prune: bool

    @property
    def may_change(self) -> tuple[str, ...]:
        """What a continuation may change; replicates where they are trials of their own, not what Optuna was told."""
        more = ("replicates",) if self.search == "grid" and not self.prune else ()
        return ("out", "num_samples", "test_replicates", "objective", "optuna_storage", "prune", *more)

    def search_trials(self, setting: Setting) -> list[TrialSpec]:
        """The trials that train a setting beside a holdout."""
        spec = self.search_trial(setting)
        return [replace(spec, replicates=some) for some in in_trials(self.replicates, self.replicates_per_trial)]

    def settings_to_test(self) -> list[Setting]:
        """Those that are retrained and tested in any case, whatever is selected."""
        return []

    def search_trial(self, setting: Setting) -> TrialSpec:
        """All replicates of a setting in one trial."""
        return TrialSpec(
            task=self.task.name,
            phase="search",
            setting=dict(setting),
            members=self.members,
            replicates=tuple(range(self.replicates)),
            seed=self.seed,
            train=self.train,
            holdout=self.holdout,
            train_fraction=self.train_fraction,
            test_fraction=self.test_fraction,
            precision=self.precision,
        )

    def test_trials(self, setting: Setting) -> list[TrialSpec]:
        """The trials that retrain a setting on the whole pool: as many replicates at once as in the search, so that
        what fitted into memory there fits here.
        """
        groups = in_trials(self.test_replicates, self.replicates_per_trial, FIRST_TEST_REPLICATE)
        spec = replace(self.search_trial(setting), phase="test", holdout=None)
        return [replace(spec, replicates=group) for group in groups]

    def to_json(self) -> dict[str, Any]:
        """For study.json: one level, under the names of the flags."""
        flat = {name: value for name, value in self.__dict__.items() if name not in ("train", "holdout")}
        own: dict[str, Any] = {"holdout": self.holdout.order, "val_fraction": self.holdout.fraction}
        smaller = scaled_down(self.task, self.train_fraction, self.test_fraction, f"{self.train.epochs} epochs")
        own |= {} if smaller is None else {"scaled_down": smaller}
        if self.optuna_storage is not None:
            flat["optuna_storage"] = mask(self.optuna_storage)
        return flat | asdict(self.train) | own | {"task": self.task.name, "out": str(self.out)}


@dataclass(frozen=True)
class SearchStudyConfig(StudyConfig):
    """The flags of those studies."""

    test_replicates: int | None = flag("ensembles retrained on the whole pool at each of the two optima")
    val_fraction: float | None = flag("share of the pool that each member holds out in the search")
    holdout: str = flag("which points members hold out: shared, overlapping, or an order from 2 to --members", "shared")
    num_samples: int | None = flag("how many settings to try")
    objective: Objective = flag("validation metric that the two optima minimise; rmse is for regressions", "nll")
    optuna_storage: str | None = flag(
        "database in which Optuna keeps its search, such as postgresql://user@host/name (default: a file in the folder)"
    )
    prune: bool = flag("stop trials that are clearly beaten, for the average member and for the ensemble", False)

    def check_ranges(self) -> None:
        """Refuse numbers that make no sense."""
        super().check_ranges()
        self.check_at_least({"test_replicates": 1, "num_samples": 2})
        if self.val_fraction is not None and not 0 < self.val_fraction < 1:
            raise UserError(f"--val-fraction must lie between 0 and 1, however: {self.val_fraction:g}.")
        if self.optuna_storage is not None and "://" not in self.optuna_storage:
            raise UserError(
                "--optuna-storage takes a database address such as postgresql://user@host/database or "
                f"sqlite:///file.db, however: {self.optuna_storage}."
            )

    def common(self, study: str, task: Task) -> dict[str, Any]:
        """The fields that all plans have: the task's defaults, those of its preset, or a smoke run's in the gaps,
        everything checked.
        """
        self.check_ranges()
        task = task.with_preset(self.preset)
        check_objective(self.objective, task.loss)
        usual = task.defaults

        smoke = SMOKE | dict.fromkeys(("train_fraction", "test_fraction"), task.smoke_fraction)

        def pick(name: str, of_task: Any) -> Any:
            return self.pick(name, of_task, smoke)

        members = pick("members", usual.members)
        order = parse_order(self.holdout, members)
        if order == 1:
            raise UserError(
                "A disjoint holdout (order 1) gives no ensemble NLL to select by, because no point is held out by two "
                "members; choose --holdout shared, overlapping or an order from 2 up."
            )
        return {
            "study": study,
            "task": task,
            "members": members,
            "replicates": pick("replicates", usual.replicates),
            "test_replicates": pick("test_replicates", usual.test_replicates),
            "train": replace(usual.train, epochs=pick("epochs", usual.train.epochs), lr=pick("lr", usual.train.lr)),
            "holdout": Holdout(order, pick("val_fraction", usual.val_fraction)),
            "objective": self.objective,
            "seed": self.seed,
            "train_fraction": pick("train_fraction", usual.train_fraction),
            "test_fraction": pick("test_fraction", usual.test_fraction),
            "precision": self.precision,
            "smoke": self.smoke,
            "out": self.folder(study),
            "optuna_storage": self.optuna_storage,
            "prune": self._resolve_prune(pick("replicates", usual.replicates)),
        }

    def in_one_trial(self, search: SearchName, replicates: int, task: Task) -> int:
        """How many replicates a trial trains: Optuna is told of whole settings, and pruning compares replicates."""
        if search == "grid" and not self.prune:
            return self.in_a_trial(task.loop_on_cpu)
        if self.replicates_per_trial not in (None, replicates):
            raise UserError(
                "--replicates-per-trial is for a grid without --prune; else a trial trains all replicates of a setting."
            )
        return replicates

    def _resolve_prune(self, replicates: int) -> bool:
        if self.prune and replicates < 2:
            raise UserError("--prune compares replicates, so that chance stops no trial; give --replicates 2 or more.")
        return self.prune

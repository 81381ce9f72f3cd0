"""What defines a trial. Equal specs give equal predictions, so a finished trial is never trained again."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from ensgap.holdout import Holdout
from ensgap.hyperparameters import Setting, Value, short, train_config
from ensgap.stack import FastInit, Precision
from ensgap.stopping import Stopping
from ensgap.train import TrainConfig

Phase = Literal["search", "test", "holdout"]
FIRST_TEST_REPLICATE = 1000
"""Test replicates are numbered from here: fresh seeds, so that what selection saw does not favour what it selected."""
FIRST_FINAL_REPLICATE = 1_000_000
"""And from here those of ensembles that are trained to be used."""
NOT_IN_A_SETTING = ("replicates", "holdout", "val_fraction", "fast_weights")
"""What a Tune configuration has beside a setting, which therefore cannot be names of hyperparameters."""
LONGEST_NAME = 120


STACKED_REPLICATES = 5
"""Replicates that one trial trains together where that is faster; in a loop it is not, and each has its own trial."""


def in_trials(count: int, size: int, first: int = 0) -> list[tuple[int, ...]]:
    """Replicates, so many of them to a trial."""
    return [tuple(range(i, min(i + size, first + count))) for i in range(first, first + count, size)]


@dataclass(frozen=True)
class TrialSpec:
    """One setting, trained as a stack of its replicates."""

    task: str
    phase: Phase
    """search: train beside a holdout; test: train on the whole pool, then meet the test data; holdout: both at once,
    for what is decided on the holdout after or while training."""
    setting: Setting
    members: int
    replicates: tuple[int, ...]
    seed: int
    train: TrainConfig
    holdout: Holdout | None  # none in the test phase, which trains on the whole pool
    train_fraction: float = 1.0  # the share of the pool that there was
    test_fraction: float = 1.0  # and of the test data
    precision: Precision = "float32"
    stopping: Stopping | None = None  # none: trained to the last epoch
    fast_weights: FastInit | None = None  # a BatchEnsemble with this initialisation; none: a deep ensemble

    def identity(self) -> dict[str, Any]:
        """Everything about it, as JSON; what it does not have is left out."""
        found = asdict(self) | {"setting": dict(self.setting), "replicates": list(self.replicates)}
        if self.stopping is not None:
            found["stopping"]["rules"] = list(self.stopping.rules)
        if self.test_fraction == 1:
            found["test_fraction"] = None  # as in trials of before there was a choice
        return {name: value for name, value in found.items() if value is not None or name == "holdout"}

    @classmethod
    def of(cls, identity: Mapping[str, Any]) -> "TrialSpec":
        """A search or test trial of that identity."""
        holdout = None if identity["holdout"] is None else Holdout(**identity["holdout"])
        own = {
            "train": TrainConfig(**identity["train"]),
            "holdout": holdout,
            "replicates": tuple(identity["replicates"]),
        }
        return cls(**{**identity, **own})

    @property
    def training(self) -> TrainConfig:
        """How its setting is trained."""
        return train_config(self.train, self.setting)

    @property
    def key(self) -> str:
        """A readable folder name that no other trial has."""
        digest = hashlib.sha256(json.dumps(self.identity(), sort_keys=True).encode()).hexdigest()[:10]
        return "-".join([self.phase, describe_point(self.to_point()), digest])

    def to_point(self) -> dict[str, Any]:
        """What sets it apart from the other trials of its study, as a Tune configuration."""
        point: dict[str, Any] = dict(self.setting) | {"replicates": list(self.replicates)}
        if self.phase == "holdout":
            assert self.holdout is not None
            point |= {"holdout": self.holdout.order, "val_fraction": self.holdout.fraction}
            point |= {"fast_weights": self.fast_weights or "none"}
        return point

    def at_point(self, point: Mapping[str, Any]) -> "TrialSpec":
        """The trial of a Tune configuration that is otherwise like this one."""
        spec = replace(self, setting=setting_of(point), replicates=tuple(point.get("replicates", self.replicates)))
        if self.phase == "holdout":
            init = None if point["fast_weights"] == "none" else point["fast_weights"]
            spec = replace(spec, holdout=Holdout(point["holdout"], point["val_fraction"]), fast_weights=init)
        return spec


def setting_of(point: Mapping[str, Any]) -> dict[str, Value]:
    """The hyperparameters of a Tune configuration."""
    return {name: value for name, value in point.items() if name not in NOT_IN_A_SETTING}


def describe_point(point: Mapping[str, Any]) -> str:
    """A Tune configuration as a short name: `weight_decay=0.001`."""
    shown = setting_of(point) | {name: point[name] for name in ("holdout", "val_fraction") if name in point}
    text = ",".join(f"{name}={short(value)}" for name, value in sorted(shown.items()))
    text = re.sub(r"[^\w.,=+-]", "_", text)[:LONGEST_NAME]
    fast = point.get("fast_weights", "none")
    return text if fast == "none" else f"{text},{fast}"

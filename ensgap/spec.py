"""What defines a trial. Equal specs give equal predictions, so a finished trial is never trained again."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ensgap.holdout import Holdout
from ensgap.stack import Precision
from ensgap.train import TrainConfig

Phase = Literal["search", "test"]
FIRST_TEST_REPLICATE = 1000
"""Test replicates are numbered from here: fresh seeds, so that what selection saw does not favour what it selected."""


@dataclass(frozen=True)
class TrialSpec:
    """One setting, trained as a stack of its replicates."""

    task: str
    phase: Phase  # "search": train beside a holdout; "test": train on the whole pool, then meet the test data
    setting: Mapping[str, float]
    members: int
    replicates: tuple[int, ...]
    seed: int
    train: TrainConfig
    holdout: Holdout | None  # none in the test phase, which trains on the whole pool
    train_fraction: float = 1.0  # the share of the pool that there was
    precision: Precision = "float32"

    def identity(self) -> dict[str, Any]:
        """Everything about it, as JSON."""
        return asdict(self) | {"setting": dict(self.setting), "replicates": list(self.replicates)}

    @property
    def key(self) -> str:
        """A readable folder name that no other trial has."""
        digest = hashlib.sha256(json.dumps(self.identity(), sort_keys=True).encode()).hexdigest()[:10]
        return "-".join([self.phase, describe_setting(self.setting), digest])


def describe_setting(setting: Mapping[str, float]) -> str:
    """A setting as a short name: `weight_decay=0.001`."""
    return ",".join(f"{name}={value:.4g}" for name, value in sorted(setting.items()))

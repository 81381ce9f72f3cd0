"""The setting that is best for one network, the one that is best for the ensemble, and what the wrong one costs."""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ensgap.ensemble import Ensemble as Ensemble
    from ensgap.ensemble import load as load
    from ensgap.errors import UserError as UserError
    from ensgap.search.tune import tune as tune
    from ensgap.space import choice as choice
    from ensgap.space import integer as integer
    from ensgap.space import log as log
    from ensgap.space import uniform as uniform
    from ensgap.tasks import Task as Task
    from ensgap.train import TrainConfig as TrainConfig

_WHERE = {
    "Ensemble": "ensgap.ensemble",
    "Task": "ensgap.tasks",
    "TrainConfig": "ensgap.train",
    "UserError": "ensgap.errors",
    "choice": "ensgap.space",
    "integer": "ensgap.space",
    "load": "ensgap.ensemble",
    "log": "ensgap.space",
    "tune": "ensgap.search.tune",
    "uniform": "ensgap.space",
}
__all__ = ["__version__", *_WHERE]


def __getattr__(name: str) -> Any:
    """Import a name when it is first used, so that importing ensgap stays light."""
    if name not in _WHERE:
        raise AttributeError(f"module 'ensgap' has no attribute '{name}'")
    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

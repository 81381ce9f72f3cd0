"""What the plans of all studies have in common."""

from pathlib import Path
from typing import Any, Protocol

from ensgap.errors import UserError
from ensgap.tasks import Task


class Plan(Protocol):
    """Everything that decides a study's figures, and where they go."""

    @property
    def may_change(self) -> tuple[str, ...]:
        """What may differ in a continuation; anything else would change figures that are already there."""
        ...

    @property
    def study(self) -> str:
        """Which study."""
        ...

    @property
    def task(self) -> Task:
        """On which task."""
        ...

    @property
    def train_fraction(self) -> float:
        """The share of the pool."""
        ...

    @property
    def smoke(self) -> bool:
        """Whether it is a smoke run."""
        ...

    @property
    def out(self) -> Path:
        """The study's folder."""
        ...

    def to_json(self) -> dict[str, Any]:
        """For study.json: one level, under the names of the flags."""
        ...


def check_continues(plan: Plan, recorded: dict[str, Any]) -> None:
    """Refuse to continue a study with another configuration, naming what differs."""
    for name, value in plan.to_json().items():
        if name not in plan.may_change and recorded.get(name) != value:
            raise UserError(
                f"The study in {plan.out} was run with {name.replace('_', ' ')} {recorded.get(name)}, not {value}; "
                "repeat its flags with --resume, or choose another --out."
            )

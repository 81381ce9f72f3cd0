"""What the plans of all studies have in common."""

from pathlib import Path
from typing import Any, Protocol

from ensgap.errors import UserError
from ensgap.tasks import Task

BEFORE = {"test_fraction": 1.0}
"""What studies had without recording it, before there was a choice."""


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
    def test_fraction(self) -> float:
        """The share of the test data."""
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


def scaled_down(task: Task, train_fraction: float, test_fraction: float, epochs: str) -> str | None:
    """In words, how a study is smaller than the task allows; none if it is not."""
    shares = [f"{100 * train_fraction:.4g}% of the training pool"] * (train_fraction < 1)
    shares += [f"{100 * test_fraction:.4g}% of the test data"] * (test_fraction < 1)
    return ", ".join(shares + ([epochs, task.smaller_network] if task.smaller_network else [])) or None


def check_continues(plan: Plan, recorded: dict[str, Any]) -> None:
    """Refuse to continue a study with another configuration, naming what differs."""
    for name, value in plan.to_json().items():
        before = recorded.get(name, BEFORE.get(name))
        if name not in plan.may_change and before != value:
            raise UserError(
                f"The study in {plan.out} was run with {name.replace('_', ' ')} {before}, not {value}; "
                "repeat its flags with --resume, or choose another --out."
            )

"""Search spaces: ranges and choices by name, or a function that asks an Optuna trial for one value after the other."""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ensgap.errors import UserError
from ensgap.hyperparameters import Setting, Value, short


@dataclass(frozen=True)
class Range:
    """Numbers from low to high, both included: evenly or log-spaced, whole or not."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise UserError(f"A range goes from a lower to a higher number, however: {self.low} to {self.high}.")
        if self.log and self.low <= 0:
            raise UserError(
                f"On a log scale a range begins above 0, however: {self.low:g}; use ensgap.uniform for one with 0."
            )
        if self.whole and (self.low != int(self.low) or self.high != int(self.high)):
            raise UserError(f"A range of whole numbers has whole ends, however: {self.low} to {self.high}.")

    def __str__(self) -> str:
        return f"{'integer' if self.whole else 'log' if self.log else 'uniform'}({self.low:g}, {self.high:g})"

    def suggest(self, trial: Any, name: str) -> Value:
        """Ask a trial for a value."""
        if self.whole:
            return int(trial.suggest_int(name, int(self.low), int(self.high)))
        return float(trial.suggest_float(name, self.low, self.high, log=self.log))

    def grid(self, count: int) -> list[Value]:
        """So many values over the range, its ends among them."""
        shares = [i / (count - 1) for i in range(count)]
        if self.log:
            return [float(f"{self.low * (self.high / self.low) ** s:.4g}") for s in shares]
        values = [self.low + (self.high - self.low) * s for s in shares]
        return sorted({round(v) for v in values}) if self.whole else [float(f"{v:.6g}") for v in values]


@dataclass(frozen=True)
class Choice:
    """One of several values."""

    options: tuple[Value, ...]

    def __str__(self) -> str:
        return f"choice({', '.join(map(repr, self.options))})"

    def suggest(self, trial: Any, name: str) -> Value:
        """Ask a trial for a value."""
        chosen: Value = trial.suggest_categorical(name, list(self.options))
        return chosen

    def grid(self, count: int) -> list[Value]:
        """All of them."""
        return list(self.options)


Space = Mapping[str, Range | Choice | Value] | Callable[[Any], Setting]
"""Hyperparameters by name, each with its range, its choices, or one fixed value; or a function of an Optuna trial that
returns the setting, in which what is asked may depend on what was answered.
"""


def log(low: float, high: float) -> Range:
    """Numbers on a log scale, for learning rates and weight decays."""
    return Range(low, high, log=True)


def uniform(low: float, high: float) -> Range:
    """Numbers on a linear scale."""
    return Range(low, high)


def integer(low: int, high: int) -> Range:
    """Whole numbers."""
    return Range(low, high, whole=True)


def choice(*options: Value) -> Choice:
    """One of these values."""
    wrong = [option for option in options if not isinstance(option, bool | int | float | str)]
    if wrong:
        raise UserError(f"A choice is between numbers, words, True and False, however: {wrong[0]!r}.")
    if len(set(options)) < 2:
        raise UserError(f"A choice needs at least two different options, however: {list(options)}.")
    return Choice(options)


def check(space: Any) -> None:
    """Refuse what is no space."""
    if callable(space):
        return
    if not isinstance(space, Mapping) or not space:
        raise UserError(
            'A space is a dictionary such as {"weight_decay": ensgap.log(1e-6, 1e-1)}, or a function of an Optuna '
            f"trial, however: {space!r}."
        )
    for name, domain in space.items():
        if not isinstance(domain, Range | Choice | bool | int | float | str):
            raise UserError(
                f"The space of {name} must be ensgap.log, uniform, integer or choice, or one value, however: "
                f"{domain!r}."
            )
    if not any(isinstance(domain, Range | Choice) for domain in space.values()):
        raise UserError("The space has only fixed values; give one of them a range, such as ensgap.log(1e-6, 1e-1).")


def asked_of(space: Space, trial: Any) -> dict[str, Value]:
    """The setting that a trial's answers make."""
    if not callable(space):
        return {name: d.suggest(trial, name) if isinstance(d, Range | Choice) else d for name, d in space.items()}
    setting = space(trial)
    if not isinstance(setting, Mapping) or not setting:
        raise UserError(
            f'The space\'s function must return the setting as a dictionary, such as {{"lr": …}}, however: {setting!r}.'
        )
    return {name: plain(name, value) for name, value in setting.items()}


def plain(name: str, value: Any) -> Value:
    """A value of Python's own, also from NumPy's."""
    value = value.item() if hasattr(value, "item") else value
    if not isinstance(value, bool | int | float | str):
        raise UserError(f"A hyperparameter is a number, a word, True or False, however {name} is {value!r}.")
    return value


def grid_of(space: Space, samples: int) -> list[Setting]:
    """At most so many settings: all choices, and ranges in equally many steps each."""
    if callable(space):
        raise UserError("A space that is a function has no grid; choose search='optuna' or 'random'.")
    choices = math.prod(len(d.options) for d in space.values() if isinstance(d, Choice))
    ranges = sum(isinstance(d, Range) for d in space.values())
    steps = int((samples / choices) ** (1 / ranges) + 1e-9) if ranges else 1
    if steps < (2 if ranges else 1) or choices > samples:
        least = choices * 2**ranges
        raise UserError(f"A grid of this space has at least {least} settings; ask for num_samples={least} or more.")
    axes = [d.grid(steps) if isinstance(d, Range | Choice) else [d] for d in space.values()]
    return [dict(zip(space, values, strict=True)) for values in itertools.product(*axes)]


def size_of(space: Space) -> float:
    """How many settings it has: infinitely many where there is a continuous range, or a function."""
    if callable(space):
        return math.inf
    ranges = [d for d in space.values() if isinstance(d, Range)]
    if not all(d.whole for d in ranges):
        return math.inf
    choices = math.prod(len(d.options) for d in space.values() if isinstance(d, Choice))
    return choices * math.prod(int(d.high - d.low) + 1 for d in ranges)


def in_json(space: Space) -> dict[str, str] | str:
    """For study.json and the report."""
    if callable(space):
        return f"function {getattr(space, '__name__', 'space')}"
    return {name: str(d) if isinstance(d, Range | Choice) else short(d) for name, d in space.items()}

"""Hyperparameters: what a setting may hold, where each value goes, and which may differ between members of a stack."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ensgap.errors import UserError
from ensgap.train import TrainConfig

Value = float | int | str | bool
Setting = Mapping[str, Value]
"""One point of a search space."""

PER_MEMBER = ("lr", "weight_decay", "label_smoothing")
"""May differ inside a stack: they are vectors over its members."""
PER_STACK = ("optimizer", "momentum", "schedule", "epochs", "batch_size")
"""Of training, and one for a whole stack. So is every argument of a network's factory: it changes what is computed."""

NUMBERS: dict[str, tuple[float, float, bool]] = {
    "lr": (0, math.inf, True),
    "weight_decay": (0, math.inf, False),
    "label_smoothing": (0, 1, False),
    "momentum": (0, 1, False),
    "epochs": (1, math.inf, False),
    "batch_size": (1, math.inf, False),
}
"""From, below, and whether the lower end is left out."""
WORDS = {"optimizer": ("sgd", "adam"), "schedule": ("cosine", "constant")}
WHOLE = ("epochs", "batch_size")


def train_config(usual: TrainConfig, setting: Setting) -> TrainConfig:
    """How a setting is trained: the usual way, except where the setting says otherwise."""
    own: dict[str, Any] = {name: setting[name] for name in ("lr", *PER_STACK) if name in setting}
    return replace(usual, **own) if own else usual


def network_arguments(setting: Setting) -> dict[str, Value]:
    """What is not a matter of training: arguments of the network's factory."""
    return {name: value for name, value in setting.items() if name not in (*PER_MEMBER, *PER_STACK)}


def member_vectors(usual: TrainConfig, setting: Setting, members: int) -> dict[str, list[float]]:
    """What may differ inside a stack, as vectors over its members."""
    values = {"lr": usual.lr, "weight_decay": 0.0, "label_smoothing": 0.0} | dict(setting)
    return {name: [float(values[name])] * members for name in PER_MEMBER}


def order_of(setting: Setting) -> tuple[tuple[str, bool, Value], ...]:
    """A key to sort settings by: name by name, numbers by size and before words."""
    return tuple((name, isinstance(value, str), value) for name, value in sorted(setting.items()))


def in_words(setting: Setting) -> str:
    """`lr 0.1, weight decay 0.001`."""
    return ", ".join(f"{name.replace('_', ' ')} {short(value)}" for name, value in setting.items())


def short(value: Value) -> str:
    """A value, short: 0, 0.003, 1e-05, relu."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def check_values(setting: Setting) -> None:
    """Refuse values that training cannot take."""
    for name, value in setting.items():
        if name in NUMBERS:
            low, high, above = NUMBERS[name]
            number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if not (number and low <= value < high and not (above and value == low)):  # type: ignore[operator]
                least = f"above {low:g}" if above else f"at least {low:g}"
                most = f" and below {high:g}" if math.isfinite(high) else ""
                raise UserError(f"{name} must be a number {least}{most}, however: {value!r}.")
        if name in WORDS and value not in WORDS[name]:
            raise UserError(f"{name} is one of {', '.join(WORDS[name])}, however: {value!r}.")
        if name in WHOLE and not isinstance(value, int):
            raise UserError(f"{name} must be a whole number, however: {value!r}; use ensgap.integer or choice for it.")

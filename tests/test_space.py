"""Search spaces: ranges, choices, grids and functions."""

from collections.abc import Mapping
from typing import Any

import optuna
import pytest

import ensgap
from ensgap import space as spaces
from ensgap.errors import UserError
from ensgap.hyperparameters import Value, check_values
from ensgap.plans.tune import TuneConfig
from ensgap.space import Choice, Range
from ensgap.tasks import get_task

SPACE: Mapping[str, Range | Choice | Value] = {
    "lr": ensgap.log(1e-3, 1.0),
    "dropout": ensgap.uniform(0.0, 0.5),
    "width": ensgap.integer(4, 8),
    "optimizer": ensgap.choice("sgd", "adam"),
    "batch_size": 32,
}


def test_a_trial_is_asked_for_every_value() -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(20):
        setting: Any = spaces.asked_of(SPACE, study.ask())
        assert list(setting) == list(SPACE)
        assert 1e-3 <= setting["lr"] <= 1 and 0 <= setting["dropout"] <= 0.5 and setting["width"] in range(4, 9)
        assert setting["batch_size"] == 32
        check_values(setting)


def test_a_function_may_ask_what_depends_on_other_answers() -> None:
    def space(trial: Any) -> dict[str, Any]:
        return {"lr": trial.suggest_float("lr", 0.1, 1.0), "momentum": 0.9}

    trial = optuna.trial.FixedTrial({"lr": 0.5})
    assert spaces.asked_of(space, trial) == {"lr": 0.5, "momentum": 0.9}
    with pytest.raises(UserError, match="must return the setting as a dictionary"):
        spaces.asked_of(type, trial)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="lr is <class"):
        spaces.asked_of(lambda trial: {"lr": type(trial)}, trial)  # type: ignore[dict-item]


def test_grids_have_all_choices_and_the_ends_of_ranges() -> None:
    small = {name: SPACE[name] for name in ("lr", "optimizer", "batch_size")}
    grid = spaces.grid_of(small, 9)
    assert len(grid) == 8
    assert grid[0] == {"lr": 1e-3, "optimizer": "sgd", "batch_size": 32}
    assert {setting["lr"] for setting in grid} == {1e-3, 1e-2, 1e-1, 1.0}
    assert spaces.grid_of({"n": ensgap.integer(1, 3)}, 10) == [{"n": 1}, {"n": 2}, {"n": 3}]
    with pytest.raises(UserError, match="num_samples=4 or more"):
        spaces.grid_of(small, 3)


def test_a_finite_space_is_not_asked_for_more_than_it_has() -> None:
    assert spaces.size_of({"width": ensgap.choice(8, 16, 32), "depth": ensgap.integer(1, 2), "lr": 0.1}) == 6
    assert spaces.size_of(SPACE) == float("inf")
    config = TuneConfig(space={"batch_size": ensgap.choice(16, 32)}, num_samples=10)
    assert config.plan(get_task("digits")).num_samples == 2


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ensgap.log(0, 1), "begins above 0"),
        (lambda: ensgap.uniform(2, 1), "from a lower to a higher number"),
        (lambda: ensgap.integer(1, 2.5), "whole ends"),  # type: ignore[arg-type]
        (lambda: ensgap.choice("a"), "at least two different options"),
        (lambda: ensgap.choice([1], [2]), "between numbers, words"),  # type: ignore[arg-type]
        (lambda: spaces.check({}), "A space is a dictionary"),
        (lambda: spaces.check({"lr": 0.1}), "only fixed values"),
        (lambda: spaces.check({"lr": (1, 2)}), "The space of lr must be"),
        (lambda: check_values({"lr": 0}), "lr must be a number above 0"),
        (lambda: check_values({"momentum": 1.0}), "at least 0 and below 1"),
        (lambda: check_values({"batch_size": 2.5}), "whole number"),
        (lambda: check_values({"optimizer": "lion"}), "optimizer is one of sgd, adam"),
    ],
)
def test_what_is_no_space_is_refused(make: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        make()

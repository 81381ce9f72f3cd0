"""Many trials in flight, and no two of them nearly the same."""

import itertools
import math
from pathlib import Path

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from ensgap.hyperparameters import Setting
from ensgap.search.optuna_search import two_objective_search
from ensgap.search.optuna_storage import open_storage
from ensgap.search.spread import SpreadSampler, distance
from ensgap.search.weight_decay import between

GRID = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
DECADES = 4


def answer(exponent: float, rng: np.random.Generator) -> dict[str, float]:
    noise = 0.01 * rng.normal(size=2)
    return {"avg_member_nll": (exponent + 3) ** 2 + noise[0], "ensemble_nll": (exponent + 2.5) ** 2 + noise[1]}


@pytest.mark.parametrize("seed", [0, 1])
def test_32_in_flight_are_no_near_duplicates_of_each_other_or_of_ended_ones(seed: int, tmp_path: Path) -> None:
    points: list[Setting] = [{"weight_decay": value} for value in GRID]
    storage = open_storage(tmp_path / "j")
    searcher = two_objective_search(storage, "s", between(GRID[0], GRID[-1]), seed=seed, ended=(), first=points)
    rng = np.random.default_rng(seed)
    in_flight: dict[str, float] = {}
    exponents = []
    for i in range(72):
        if len(in_flight) == 32:
            name = list(in_flight)[rng.integers(32)]
            searcher.on_trial_complete(name, answer(in_flight.pop(name), rng))
        point = searcher.suggest(f"t{i}")
        assert point is not None
        in_flight[f"t{i}"] = math.log10(point["point"]["weight_decay"])
        exponents.append(in_flight[f"t{i}"])
    gaps = np.diff(np.sort(exponents)) / DECADES
    assert gaps.min() > 1e-3  # constant liar alone: 3e-5 to 4e-4
    late = np.array(exponents[-20:])
    assert (np.abs(late + 2.75) < 1.5).mean() > 0.6  # and it still looks where both objectives are good


def test_a_full_space_gives_repetitions_instead_of_no_point() -> None:
    space = {"a": CategoricalDistribution(("x", "y")), "b": IntDistribution(1, 2)}
    study = optuna.create_study(directions=["minimize"] * 2, sampler=SpreadSampler(optuna.samplers.TPESampler()))
    points = []
    for _ in range(6):
        trial = study.ask(fixed_distributions=space)
        points.append(tuple(trial.params.items()))
        study.tell(trial, [1.0, 1.0])
    assert len(set(points)) == 4
    assert len(set(points[:3])) == 3


def test_spaces_defined_by_asking_work_too() -> None:
    study = optuna.create_study(directions=["minimize"] * 2, sampler=SpreadSampler(optuna.samplers.TPESampler(seed=0)))
    seen = []
    for _ in range(40):  # all in flight
        trial = study.ask()
        lr = trial.suggest_float("lr", 1e-3, 1.0, log=True)
        if trial.suggest_categorical("optimizer", ["sgd", "adam"]) == "sgd":
            trial.suggest_float("momentum", 0.0, 1.0)
        seen.append(lr)
    assert len(set(seen)) == 40


def test_distance_is_the_largest_difference_on_each_parameters_own_scale() -> None:
    space = {
        "wd": FloatDistribution(1e-4, 1.0, log=True),
        "m": IntDistribution(0, 10),
        "o": CategoricalDistribution("ab"),
    }
    base = {"wd": 1e-2, "m": 5, "o": "a"}
    assert distance(base, base, space) == 0
    assert distance(base, base | {"wd": 1e-1}, space) == pytest.approx(0.25)
    assert distance(base, base | {"wd": 1e-1, "m": 9}, space) == pytest.approx(0.4)
    assert distance(base, base | {"o": "b"}, space) == 1
    for a, b in itertools.combinations([base, base | {"m": 1}, base | {"o": "b"}], 2):
        assert distance(a, b, space) == distance(b, a, space)

"""Configurations: the task's defaults in the gaps, and one clear sentence for what makes no sense."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ensgap.errors import UserError
from ensgap.plans.plan import check_continues
from ensgap.plans.weight_decay import WeightDecayConfig
from ensgap.search.study import chosen_task
from ensgap.tasks import get_task

DIGITS = get_task("digits")


def test_the_tasks_defaults_fill_the_gaps() -> None:
    plan = WeightDecayConfig().plan(DIGITS)
    assert (plan.members, plan.replicates, plan.train.epochs) == (8, 5, 40)
    assert plan.grid == DIGITS.defaults.grid
    assert plan.holdout.order == 8
    assert plan.out == Path("reports/weight_decay-digits")
    assert WeightDecayConfig(lr=0.3, epochs=7).plan(DIGITS).train == replace(DIGITS.defaults.train, lr=0.3, epochs=7)


def test_zero_is_always_in_the_grid_and_values_are_tried_once() -> None:
    assert WeightDecayConfig(grid=(1e-2, 1e-3, 1e-2)).plan(DIGITS).grid == (0.0, 1e-3, 1e-2)
    plan = WeightDecayConfig(num_samples=5).plan(DIGITS)
    assert plan.grid == (0.0, 3.162e-05, 0.0003162, 0.003162, 0.03162)


def test_smoke_is_tiny_and_apart() -> None:
    plan = WeightDecayConfig(smoke=True, members=3).plan(DIGITS)
    assert (plan.members, plan.replicates, plan.train.epochs, len(plan.grid)) == (3, 2, 2, 3)
    assert plan.out.name == "weight_decay-digits-smoke"


def test_optuna_tries_the_grid_and_more() -> None:
    assert WeightDecayConfig(search="optuna").plan(DIGITS).num_samples == len(DIGITS.defaults.grid) + 16


def test_test_trials_cover_the_replicates_in_stacks_of_the_searchs_size() -> None:
    groups = [
        spec.replicates
        for spec in WeightDecayConfig(replicates=5, test_replicates=12).plan(DIGITS).test_trials({"weight_decay": 0.1})
    ]
    assert [len(g) for g in groups] == [5, 5, 2]
    assert sum(groups, ()) == tuple(range(1000, 1012))


def test_replicates_in_a_loop_are_trials_of_their_own_and_may_become_more() -> None:
    nci1 = get_task("nci1")
    plan = WeightDecayConfig(task="nci1", replicates=3, test_replicates=2).plan(nci1)
    assert [spec.replicates for spec in plan.search_trials({"weight_decay": 0.0})] == [(0,), (1,), (2,)]
    assert [spec.replicates for spec in plan.test_trials({"weight_decay": 0.0})] == [(1000,), (1001,)]
    check_continues(WeightDecayConfig(task="nci1", replicates=5).plan(nci1), plan.to_json())
    together = WeightDecayConfig(task="nci1", replicates=3, replicates_per_trial=2).plan(nci1)
    assert [spec.replicates for spec in together.search_trials({"weight_decay": 0.0})] == [(0, 1), (2,)]


def test_optuna_and_pruning_see_all_replicates_of_a_setting() -> None:
    optuna = WeightDecayConfig(replicates=7, search="optuna").plan(DIGITS)
    assert [len(spec.replicates) for spec in optuna.search_trials({"weight_decay": 0.0})] == [7]
    assert WeightDecayConfig(replicates=7, prune=True).plan(DIGITS).replicates_per_trial == 7
    with pytest.raises(UserError, match="replicates 5, not 7"):
        check_continues(optuna, WeightDecayConfig(replicates=5, search="optuna").plan(DIGITS).to_json())


def test_further_weight_decays_are_tested() -> None:
    plan = WeightDecayConfig(also_test=(1e-3, 0.0, 1e-3)).plan(DIGITS)
    assert plan.settings_to_test() == [{"weight_decay": 0.0}, {"weight_decay": 1e-3}]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"members": 1}, "--members must be at least 2"),
        ({"replicates": 0}, "--replicates must be at least 1"),
        ({"epochs": 0}, "--epochs must be at least 1"),
        ({"lr": -0.1}, "--lr must be a positive number"),
        ({"lr": float("nan")}, "--lr must be a positive number"),
        ({"val_fraction": 1.0}, "--val-fraction must lie between 0 and 1"),
        ({"train_fraction": 0.0}, "--train-fraction must be above 0"),
        ({"gpus_per_trial": -1.0}, "--gpus-per-trial must not be negative"),
        ({"preset": "paper"}, "has no preset 'paper'; it has none"),
        ({"seed": -1}, "--seed must be at least 0"),
        ({"grid": (-1.0,)}, "weight decays from 0 up"),
        ({"also_test": (-1.0,)}, "--also-test takes weight decays from 0 up"),
        ({"replicates_per_trial": 0}, "--replicates-per-trial must be at least 1"),
        ({"replicates_per_trial": 2, "search": "optuna"}, "is for a grid without --prune"),
        ({"grid": (0.0,)}, "at least one weight decay above 0"),
        ({"grid": (1e-3,), "num_samples": 4}, "give one of them"),
        ({"search": "optuna", "num_samples": 5}, "leaves Optuna nothing"),
        ({"search": "optuna", "grid": (1e-3,)}, "at least two of them"),
        ({"holdout": "disjoint"}, "no ensemble NLL to select by"),
        ({"holdout": "9"}, "order from 1 to 8"),
        ({"objective": "rmse"}, "--objective rmse is not for a classification; choose one of: nll, brier, error"),
        ({"concurrency": 0}, "--concurrency must be at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused(flags: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        WeightDecayConfig(**flags).plan(DIGITS)


def test_a_continued_study_may_grow_but_not_change() -> None:
    plan = WeightDecayConfig().plan(DIGITS)
    check_continues(plan, WeightDecayConfig(grid=(1e-3,), test_replicates=3, out=Path("x")).plan(DIGITS).to_json())
    with pytest.raises(UserError, match=r"lr 0\.2, not 0\.1"):
        check_continues(plan, WeightDecayConfig(lr=0.2).plan(DIGITS).to_json())


def test_unknown_task() -> None:
    with pytest.raises(UserError, match="no task 'mnist'"):
        get_task("mnist")


def test_the_papers_presets() -> None:
    expected = {"cifar10": (0.1, 100, 4), "nci1": (0.1, 200, 4), "covertype": (0.3, 100, 8), "ag_news": (0.1, 100, 8)}
    for name, (lr, epochs, members) in expected.items():
        plan = WeightDecayConfig(task=name, preset="paper").plan(get_task(name))
        assert (plan.train.lr, plan.train.epochs, plan.members) == (lr, epochs, members)
        assert (plan.train.optimizer, plan.train.momentum, plan.train.schedule) == ("sgd", 0.9, "cosine")
        assert (plan.train.batch_size, plan.holdout.fraction, plan.holdout.order) == (128, 0.1, members)
        assert WeightDecayConfig(task=name, preset="paper", lr=0.5).plan(get_task(name)).train.lr == 0.5


def test_hidden_layers_are_an_option_of_the_mlp() -> None:
    deeper = chosen_task(WeightDecayConfig(task="covertype", hidden_layers=4))
    assert deeper.name == "covertype-4"
    assert sum(p.numel() for p in deeper.member(None).parameters()) == 3_216_391
    with pytest.raises(UserError, match="--hidden-layers is for covertype"):
        chosen_task(WeightDecayConfig(task="nci1", hidden_layers=4))


def test_hidden_features_are_an_option_of_the_gcn() -> None:
    """By hand, of 128: batch norms 2·37 and 6 × 2·128, linear layers 37·128 + 128, 5 × (128² + 128) and 2·128 + 2."""
    wider = chosen_task(WeightDecayConfig(task="nci1", hidden_features=128))
    assert wider.name == "nci1-128" and wider.presets == get_task("nci1").presets
    folders = [WeightDecayConfig(task="nci1", hidden_features=width).plan(wider).out.name for width in (128, None)]
    assert folders == ["weight_decay-nci1-128", "weight_decay-nci1"]
    count = 74 + 6 * 256 + 37 * 128 + 128 + 5 * (128**2 + 128) + 258
    assert sum(p.numel() for p in wider.member(None).parameters()) == count
    assert sum(p.numel() for p in wider.stacked(3).parameters()) == 3 * count
    with pytest.raises(UserError, match="--hidden-features is for nci1; the network of covertype"):
        chosen_task(WeightDecayConfig(task="covertype", hidden_features=128))
    with pytest.raises(UserError, match="--hidden-features must be at least 1"):
        WeightDecayConfig(task="nci1", hidden_features=0).plan(get_task("nci1"))

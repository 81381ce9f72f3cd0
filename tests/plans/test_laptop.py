"""The preset laptop: a smaller task of its own, which flags still overrule and nothing takes for the full one."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from ensgap.errors import UserError
from ensgap.plans.design_config import BatchEnsembleConfig, EarlyStoppingConfig, TemperatureConfig
from ensgap.plans.plan import check_continues
from ensgap.plans.weight_decay import WeightDecayConfig
from ensgap.search.study import chosen_task, share_of
from ensgap.spec import TrialSpec
from ensgap.tasks import get_task

SCALED = ("covertype", "ag_news", "cifar10")


@pytest.mark.parametrize("name", SCALED)
def test_it_fills_the_gaps_of_a_weight_decay_study(name: str) -> None:
    task = get_task(name)
    plan, full = WeightDecayConfig(task=name, preset="laptop").plan(task), WeightDecayConfig(task=name).plan(task)
    smaller = task.scaled_down["laptop"]
    assert plan.task is smaller
    assert (plan.train, plan.grid) == (smaller.defaults.train, smaller.defaults.grid)
    assert (plan.train_fraction, plan.test_fraction) == (
        smaller.defaults.train_fraction,
        smaller.defaults.test_fraction,
    )
    assert plan.train_fraction < 1 == full.train_fraction == full.test_fraction
    assert plan.members == full.members
    assert len(plan.grid) >= 8 and plan.grid[0] == 0
    assert plan.replicates >= 3 and plan.test_replicates >= 5
    assert plan.out != full.out
    sizes = [sum(p.numel() for p in each.member(torch.Generator()).parameters()) for each in (smaller, task)]
    assert sizes[0] < sizes[1]


@pytest.mark.parametrize("name", SCALED)
def test_flags_win_over_it(name: str) -> None:
    flags: dict[str, Any] = {"members": 3, "epochs": 7, "lr": 0.5, "train_fraction": 0.5, "test_fraction": 1.0}
    plan = WeightDecayConfig(preset="laptop", grid=(1e-3,), val_fraction=0.3, **flags).plan(get_task(name))
    assert (plan.members, plan.train.epochs, plan.train.lr) == (3, 7, 0.5)
    assert (plan.train_fraction, plan.test_fraction, plan.grid, plan.holdout.fraction) == (0.5, 1.0, (0.0, 1e-3), 0.3)
    stopped = EarlyStoppingConfig(preset="laptop", val_fractions=(0.3,), replicates=1, **flags).plan(get_task(name))
    assert (stopped.members, stopped.train.epochs, stopped.train.lr) == (3, 7, 0.5)
    assert (stopped.train_fraction, stopped.test_fraction, stopped.replicates) == (0.5, 1.0, 1)
    assert stopped.val_fractions == (0.3,)


@pytest.mark.parametrize("name", SCALED)
def test_its_trials_are_never_taken_for_those_of_the_full_task(name: str) -> None:
    flags: dict[str, Any] = {"epochs": 3, "lr": 0.1, "train_fraction": 1.0, "test_fraction": 1.0, "val_fraction": 0.1}
    small, full = (WeightDecayConfig(preset=p, **flags).plan(get_task(name)) for p in ("laptop", "paper"))
    small_spec, full_spec = (plan.search_trial({"weight_decay": 1e-3}) for plan in (small, full))
    assert replace(small_spec, task=full_spec.task, replicates=full_spec.replicates) == full_spec
    assert small_spec.key != replace(full_spec, replicates=small_spec.replicates).key
    with pytest.raises(UserError, match="was run with task"):
        check_continues(small, full.to_json() | {"study": small.study})


def test_the_share_of_the_test_data_is_part_of_a_trial_and_older_trials_keep_their_names() -> None:
    spec = WeightDecayConfig().plan(get_task("digits")).search_trial({"weight_decay": 1e-3})
    assert "test_fraction" not in spec.identity()
    half = replace(spec, test_fraction=0.5)
    assert half.key != spec.key
    assert TrialSpec.of(half.identity()) == half
    assert TrialSpec.of(spec.identity()) == spec


def test_a_study_of_before_there_was_a_share_of_test_data_goes_on() -> None:
    digits = get_task("digits")
    plan = WeightDecayConfig().plan(digits)
    recorded = plan.to_json()
    del recorded["test_fraction"]
    check_continues(plan, recorded)
    with pytest.raises(UserError, match=r"test fraction 1\.0, not 0\.5"):
        check_continues(WeightDecayConfig(test_fraction=0.5).plan(digits), recorded)


def test_shares_of_pool_and_test_data_are_stratified() -> None:
    digits = get_task("digits")
    data = digits.load(None)
    some = share_of(data, WeightDecayConfig(train_fraction=0.5, test_fraction=0.2).plan(digits))
    assert (len(some.pool), len(some.test)) == (round(0.5 * len(data.pool)), round(0.2 * len(data.test)))
    counts = some.test.labels.bincount(minlength=10).float() / data.test.labels.bincount(minlength=10)
    assert counts.min() > 0.15 and counts.max() < 0.25
    with pytest.raises(UserError, match="--test-fraction must be above 0"):
        WeightDecayConfig(test_fraction=0.0).plan(digits)


@pytest.mark.parametrize("config", [TemperatureConfig, EarlyStoppingConfig, BatchEnsembleConfig])
@pytest.mark.parametrize("name", SCALED)
def test_it_is_not_the_papers_experiment(name: str, config: Any) -> None:
    task = get_task(name)
    if config is BatchEnsembleConfig and task.batch_ensemble is None:
        pytest.skip("not built")
    plan = config(preset="laptop").plan(task)
    assert not plan.as_paper
    usual = config(preset="paper").plan(task)
    assert usual.as_paper
    as_usual = {"train_fraction": 1.0, "test_fraction": 1.0, "train": usual.train, "weight_decay": usual.weight_decay}
    assert not replace(plan, **as_usual).as_paper
    assert not replace(usual, test_fraction=0.5).as_paper


def test_a_scaled_down_study_says_so_in_its_configuration() -> None:
    cifar10 = get_task("cifar10")
    laptop = WeightDecayConfig(preset="laptop", train_fraction=0.1, test_fraction=1.0, epochs=8).plan(cifar10)
    assert laptop.to_json()["scaled_down"] == "10% of the training pool, 8 epochs, WRN-10-1"
    stopped = EarlyStoppingConfig(preset="laptop", train_fraction=1.0, test_fraction=0.5).plan(cifar10).to_json()
    assert stopped["scaled_down"].startswith("50% of the test data, at most ")
    assert "scaled_down" not in WeightDecayConfig(preset="paper").plan(cifar10).to_json()


def test_hidden_layers_win_over_its_network() -> None:
    config = WeightDecayConfig(task="covertype", preset="laptop", hidden_layers=2)
    plan = config.plan(chosen_task(config))
    assert plan.task.name == "covertype-2x256"
    shapes = [p.shape for p in plan.task.member(None).parameters() if p.dim() == 2]
    assert [tuple(shape) for shape in shapes] == [(256, 54), (256, 256), (7, 256)]


def test_a_task_without_it_says_what_there_is() -> None:
    with pytest.raises(UserError, match="nci1 has no preset 'laptop'; it has: paper"):
        WeightDecayConfig(preset="laptop").plan(get_task("nci1"))
    with pytest.raises(UserError, match="cifar10 has no preset 'gpu'; it has: paper, laptop"):
        EarlyStoppingConfig(preset="gpu").plan(get_task("cifar10"))

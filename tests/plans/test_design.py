"""Plans of a design: what is trained, what is left out, what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ensgap.errors import UserError
from ensgap.holdout import Holdout
from ensgap.plans.design_config import BatchEnsembleConfig, EarlyStoppingConfig, TemperatureConfig
from ensgap.plans.plan import check_continues
from ensgap.tasks import get_task

DIGITS, NCI1 = get_task("digits"), get_task("nci1")
LABELS = DIGITS.load(None).pool.labels


def test_temperature_takes_the_tasks_best_setting_for_the_average_member() -> None:
    plan = TemperatureConfig().plan(NCI1)
    assert plan.weight_decay == 3.16e-3
    assert plan.holdouts == (4, 2)
    assert plan.val_fractions == (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
    assert plan.train == NCI1.presets["paper"].train
    assert plan.as_paper
    assert not TemperatureConfig(epochs=10).plan(NCI1).as_paper
    assert not TemperatureConfig(train_fraction=0.5).plan(NCI1).as_paper
    assert TemperatureConfig(weight_decay=0.5).plan(DIGITS).weight_decay == 0.5


def test_early_stopping_is_adam_without_weight_decay() -> None:
    plan = EarlyStoppingConfig().plan(get_task("ag_news"))
    assert (plan.train.optimizer, plan.train.lr, plan.train.schedule) == ("adam", 1e-4, "constant")
    assert plan.weight_decay == 0
    assert plan.holdouts == (8, 2, 1)
    assert plan.as_paper
    assert not EarlyStoppingConfig(patience=5).plan(get_task("ag_news")).as_paper


def test_every_cell_is_trained_once_per_replicate() -> None:
    plan = EarlyStoppingConfig(members=4, replicates=12, val_fractions=(0.1, 0.2), holdouts=("shared", "3")).plan(
        DIGITS
    )
    holdouts, refused = plan.feasible(LABELS)
    trials = list(plan.trials(holdouts))
    assert not refused
    assert len({spec.key for spec in trials}) == len(trials) == 4 * 3
    for holdout in (Holdout(k, f) for k in (4, 3) for f in (0.1, 0.2)):
        assert sum((spec.replicates for spec in trials if spec.holdout == holdout), ()) == tuple(range(12))
    base = trials[0]
    assert [base.at_point(spec.to_point()) for spec in trials] == trials


def test_more_replicates_keep_the_trials_that_were_there() -> None:
    few = EarlyStoppingConfig(replicates=5).plan(DIGITS)
    many = EarlyStoppingConfig(replicates=10).plan(DIGITS)
    holdouts, _ = few.feasible(LABELS)
    assert {spec.key for spec in few.trials(holdouts)} < {spec.key for spec in many.trials(holdouts)}
    check_continues(many, few.to_json())
    with pytest.raises(UserError, match="patience 10, not 3"):
        check_continues(EarlyStoppingConfig(patience=3).plan(DIGITS), few.to_json())
    keeping = EarlyStoppingConfig(replicates=5, keep_weights=True).plan(DIGITS)  # without it, all would be trained anew
    with pytest.raises(UserError, match="keep weights True, not False"):
        check_continues(few, keeping.to_json())


def test_what_does_not_fit_is_left_out_with_a_reason() -> None:
    plan = EarlyStoppingConfig(members=4, val_fractions=(0.1, 0.4), holdouts=("disjoint", "shared")).plan(DIGITS)
    holdouts, refused = plan.feasible(LABELS)
    assert holdouts == [Holdout(4, 0.1), Holdout(4, 0.4), Holdout(1, 0.1)]
    assert len(refused) == 1
    assert refused[0].startswith("Left out: a disjoint holdout of 40%. 4 chunks of 359 points do not fit")
    with pytest.raises(UserError, match="No validation share"):
        replace(plan, val_fractions=(0.4,), holdouts=(1,)).feasible(LABELS)


def test_batch_ensemble_has_the_deep_ensemble_with_a_shared_holdout_as_its_baseline() -> None:
    plan = BatchEnsembleConfig().plan(DIGITS)
    holdouts, _ = plan.feasible(LABELS)
    trials = list(plan.trials(holdouts))
    deep = [spec for spec in trials if spec.fast_weights is None]
    assert {spec.holdout for spec in deep} == {Holdout(4, 0.1)}
    assert {spec.fast_weights for spec in trials} == {None, "gaussian_0.1", "gaussian_0.5", "sign"}
    assert all(spec.stopping and "individual" not in spec.stopping.rules for spec in trials if spec.fast_weights)
    stopped = EarlyStoppingConfig(members=4, val_fractions=(0.1,), holdouts=("shared",)).plan(DIGITS)
    assert {spec.key for spec in deep} == {spec.key for spec in stopped.trials(holdouts[:1])}


def test_disjoint_holdouts_have_individual_temperatures_and_a_sentence_about_it() -> None:
    plan = TemperatureConfig(holdouts=("shared", "disjoint"), val_fractions=(0.1,)).plan(DIGITS)
    holdouts, notes = plan.feasible(LABELS)
    assert len(holdouts) == 2
    assert len(notes) == 1 and "individual temperatures only" in notes[0]


@pytest.mark.parametrize(
    ("config", "flags", "words"),
    [
        (BatchEnsembleConfig, {"stopping": "individual"}, "share their slow weights"),
        (BatchEnsembleConfig, {"task": "nci1"}, "BatchEnsemble is built for"),
        (EarlyStoppingConfig, {"patience": 0}, "--patience must be at least 1"),
        (EarlyStoppingConfig, {"val_fractions": (0.1, 1.5)}, "--val-fractions must lie between 0 and 1"),
        (EarlyStoppingConfig, {"holdouts": ("none",)}, "A holdout is disjoint, overlapping, shared"),
        (TemperatureConfig, {"weight_decay": -1.0}, "--weight-decay must be a number from 0 up"),
        (TemperatureConfig, {"weight_decay": float("inf")}, "--weight-decay must be a number from 0 up"),
        (TemperatureConfig, {"weight_decay": 1.0, "from_": Path("x")}, "give one of them"),
        (TemperatureConfig, {"from_": Path("nowhere")}, "holds no study"),
    ],
)
def test_what_makes_no_sense_is_refused(config: Any, flags: dict[str, Any], words: str) -> None:
    task = get_task(flags.get("task", "digits"))
    with pytest.raises(UserError, match=words):
        config(**flags).plan(task)


@pytest.mark.parametrize("config", [TemperatureConfig(), EarlyStoppingConfig()])
def test_a_regression_is_refused(config: TemperatureConfig | EarlyStoppingConfig) -> None:
    with pytest.raises(UserError, match="diabetes is a regression"):
        config.plan(get_task("diabetes"))

"""The claims, on made studies whose answers are known, and the rule by which they are answered."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ensgap.calibrate import fit
from ensgap.errors import UserError
from ensgap.findings.claims import UNMOVED, Answer, Answered, answer_claims
from ensgap.findings.page import page, write_page
from ensgap.findings.rule import Part, Side, combined, part_of
from ensgap.findings.studies import PAPER_TASKS, PublishedStudy, read_published
from ensgap.plans.design_config import BatchEnsembleConfig, EarlyStoppingConfig, TemperatureConfig
from ensgap.predictions import Predictions
from ensgap.publish import publish
from ensgap.spec import TrialSpec
from ensgap.tasks import get_task
from tests.report.test_design_reports import Made, made, write_study
from tests.report.test_paper import study_of_nci1

F: Side = "for"
A: Side = "against"
O: Side = "open"  # noqa: E741


@pytest.mark.parametrize(
    ("cells", "verdict"),
    [
        ((F, F, O), "holds"),
        ((F, O), "undecided"),
        ((O, O, O), "undecided"),
        ((F, F, F, F, A), "undecided"),
        ((F, F, F, A), "does not hold"),
        ((A,), "does not hold"),
        ((), "undecided"),
    ],
)
def test_the_rule(cells: tuple[Side, ...], verdict: str) -> None:
    assert Part("", cells, "").verdict == verdict


def test_a_claim_is_as_good_as_its_worst_part() -> None:
    good, open_, bad = (Part("", (side,), "") for side in (F, O, A))
    assert combined([good, good]) == "holds"
    assert combined([good, open_]) == "undecided"
    assert combined([good, open_, bad]) == "does not hold"


def test_cells_speak_by_the_interval_of_their_differences() -> None:
    above, around, below = np.array([1.0, 1.1, 0.9]), np.array([1.0, -1.1, 0.2]), np.array([-1.0, -1.1, -0.9])
    part = part_of("x", [above, around, below], 1)
    assert part.cells == (F, O, A)
    assert part.numbers.startswith("above 0 in 1 and below 0 in 1 of 3 cells, on average +0.0 (95% interval ")
    assert part_of("x", [above[:1]]).cells == (O,)  # one replicate says nothing


def stopping(spec: TrialSpec, better: str) -> Made:
    """Rules that see the labels more or less clearly; with disjoint holdouts less so, with overlapping ones more."""
    assert spec.holdout is not None
    rules = ("individual", "shared_epoch", "joint")[: 3 if spec.holdout.order > 1 else 2]
    found = {}
    for rule in rules:
        clear = (1.2 if rule == better else 0.6) + {1: -0.3, 2: 0.3}.get(spec.holdout.order, 0.0)
        found[f"{rule}-holdout"] = made(spec, 50 + spec.replicates[0], 600, spec.holdout.order, sharpness=clear)
        found[f"{rule}-test"] = made(spec, 100 + spec.replicates[0], 600, sharpness=clear)
    return found


def kept(spec: TrialSpec) -> dict[str, Any]:
    more = spec.replicates[0] % 2
    kept = {"individual": [[4, 6, 5, 9 + more]], "shared_epoch": [[7] * 4], "joint": [[8] * 4]}
    return {"kept": kept, "steps": 6, "pool_steps": 8, "stopped": True, "parameters": 1}


def answer(published: Path, number: int) -> Answer:
    answered = next(a for a in answer_claims(published) if a.claim.number == number)
    (only,) = answered.answers
    return only


def stopped_study(path: Path, better: str, **flags: Any) -> None:
    config = EarlyStoppingConfig(
        "nci1", val_fractions=(0.05, 0.2), replicates=4, holdouts=("4", "3", "2", "1"), **flags
    )
    write_study(path, config.plan(get_task("nci1")), lambda spec, _: stopping(spec, better), kept)


def test_joint_stopping_is_found_better_or_worse(tmp_path: Path) -> None:
    stopped_study(tmp_path / "joint" / "early_stopping-nci1", "joint")
    found = answer(tmp_path / "joint", 2)
    assert [part.verdict for part in found.parts] == ["holds"] * 3 and found.verdict == "holds"
    assert {len(part.cells) for part in found.parts} == {4}  # order 3 is not the paper's
    assert (found.on, found.worth) == ("nci1", "as in the paper")
    holdouts = answer(tmp_path / "joint", 4)
    assert [len(part.cells) for part in holdouts.parts] == [1, 4] and holdouts.verdict == "holds"
    stopped_study(tmp_path / "other" / "a", "individual", train_fraction=0.5)
    found = answer(tmp_path / "other", 2)
    assert [part.verdict for part in found.parts] == ["holds", "does not hold", "does not hold"]
    assert found.verdict == "does not hold" and found.worth == "scaled down"


@pytest.mark.parametrize(("factor", "cell"), [(1.0, F), (0.05, A)])
def test_a_temperature_adds_nothing_or_much(tmp_path: Path, factor: float, cell: Side) -> None:
    def predict(spec: TrialSpec, _: int) -> Made:
        """What is calibrated on test data, times a factor that only a temperature takes away again."""
        found = {name: replace(p, logits=5 * p.logits) for name, p in stopping(spec, "joint").items()}
        best = float(fit(found["joint-test"], "joint").values[0, 0])
        assert 0.3 < best < 3
        return {name: replace(p, logits=factor * p.logits / best) for name, p in found.items()}

    config = EarlyStoppingConfig("nci1", val_fractions=(0.2,), replicates=4, holdouts=("4",))
    write_study(tmp_path / "a", config.plan(get_task("nci1")), predict, kept)
    found = answer(tmp_path, 6)
    assert found.parts[0].cells == (cell,) and found.verdict == ("holds" if cell == F else "does not hold")


def test_joint_temperatures_and_the_harm_of_individual_ones(tmp_path: Path) -> None:
    def predict(spec: TrialSpec, seed: int) -> Made:
        """Members that are calibrated one by one: their average is too soft, which one temperature mends."""
        assert spec.holdout is not None
        return {
            "holdout": made(spec, seed, 600, spec.holdout.order, sharpness=2.0),
            "test": made(spec, 900 + seed, 600, sharpness=2.0),
        }

    config = TemperatureConfig("nci1", val_fractions=(0.2,), holdouts=("4", "2"), replicates=4)
    write_study(tmp_path / "a", config.plan(get_task("nci1")), predict)
    found = answer(tmp_path, 3)
    assert found.parts[0].verdict == "holds" and found.parts[0].cells == (F, F)
    assert len(found.parts[1].cells) == 1


def test_fast_weights(tmp_path: Path) -> None:
    def predict(spec: TrialSpec, seed: int) -> Made:
        """Members with signs differ; those with Gaussian fast weights are all alike."""
        assert spec.holdout is not None
        rule = "joint" if spec.holdout.order > 1 else "shared_epoch"
        test, pool = made(spec, seed, 200), made(spec, 50 + seed, 800, spec.holdout.order, trained=400, sharpness=8.0)
        if spec.fast_weights != "sign":
            return {f"{rule}-test": _alike(test), f"{rule}-pool": _alike(pool)}
        fresh = made(spec, 50 + seed, 800, spec.holdout.order, trained=400)
        logits = pool.logits.where(~pool.held.unsqueeze(-1), fresh.logits)
        return {f"{rule}-test": test, f"{rule}-pool": Predictions(logits, pool.labels, pool.held, pool.index)}

    plan = BatchEnsembleConfig("digits", replicates=4, inits=("gaussian_0.1", "sign")).plan(get_task("digits"))
    folder = write_study(tmp_path / "a", plan, predict, kept)
    found = answer(tmp_path, 5)
    assert [part.verdict for part in found.parts] == ["holds"] * 3, found
    assert found.worth == "not in the paper"
    assert folder.read_study()["config"]["as_paper"] is False


def _alike(predictions: Predictions) -> Predictions:
    """Members that nearly agree."""
    mean = predictions.logits.mean(1, keepdim=True)
    logits = mean + 0.1 * (predictions.logits - mean)
    return Predictions(logits, predictions.labels, predictions.held, predictions.index, predictions.identity)


def test_the_best_weight_decay_and_what_is_not_answered(tmp_path: Path) -> None:
    published = tmp_path / "published"
    with pytest.raises(UserError, match="no study below"):
        page(tmp_path, tmp_path)
    publish(study_of_nci1(tmp_path / "study").local, published / "weight_decay-nci1")
    found: list[Answered] = answer_claims(published)
    assert [bool(answered.answers) for answered in found] == [True] + [False] * 5
    (part,) = found[0].answers[0].parts
    assert "best weight decay for 1 to 4 members" in part.numbers and "2 replicates" in part.numbers
    (tmp_path / "surprises.md").write_text("Nothing did.\n")
    text = write_page(tmp_path).read_text()
    assert "| 5 | Random-sign" in text and "not answered yet: `python studies/batch_ensemble.py --task digits`" in text
    assert "## What surprised us\n\nNothing did.\n" in text
    assert "Beside the paper: " in text and "](published/weight_decay-nci1/figures/nll.png)" in text
    (study,) = read_published(published)
    trials = [json.loads(path.read_text())["seconds"] for path in published.glob("*/trials/*/trial.json")]
    assert study.core_hours == pytest.approx(sum(trials) / 3600) and len(trials) == 15
    assert study.title == "Weight decay of a deep ensemble on nci1" and study.table.startswith("Beside the paper")


def test_a_smaller_network_on_the_papers_data_is_scaled_down_and_judged_like_the_papers() -> None:
    def study(task: str) -> PublishedStudy:
        return PublishedStudy(Path(f"weight_decay-{task}"), {"config": {"study": "weight_decay", "task": task}})

    scaled_down = [task.scaled_down["laptop"].name for task in map(get_task, PAPER_TASKS) if task.scaled_down]
    assert len(scaled_down) == 3 and not set(scaled_down) & set(PAPER_TASKS)
    assert {study(task).worth for task in scaled_down} == {"scaled down"}
    assert {task for task in scaled_down if study(task).family in UNMOVED} == {"ag_news-32"}
    assert study("digits").worth == "not in the paper"

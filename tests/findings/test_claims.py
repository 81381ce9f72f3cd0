"""The claims, on made studies whose answers are known, and the rule by which they are answered."""

import json
from dataclasses import replace
from pathlib import Path
from shutil import copytree, rmtree
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ensgap.calibrate import fit
from ensgap.errors import UserError
from ensgap.findings import claims_weight_decay
from ensgap.findings.beside_paper import beside_paper, near
from ensgap.findings.claims import Answer, Answered, answer_claims, read_all
from ensgap.findings.claims_weight_decay import UNMOVED, less_decay
from ensgap.findings.page import page, write_page
from ensgap.findings.rule import Part, Side, combined, part_of
from ensgap.findings.shown import shown_studies
from ensgap.findings.studies import PAPER_TASKS, PublishedStudy, read_published
from ensgap.gap import Estimate
from ensgap.plans.design_config import BatchEnsembleConfig, EarlyStoppingConfig, TemperatureConfig
from ensgap.predictions import Predictions
from ensgap.publish import publish
from ensgap.results.shift import Shift
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
        ((), "not tested"),
    ],
)
def test_the_rule(cells: tuple[Side, ...], verdict: str) -> None:
    assert Part("", cells, "").verdict == verdict


def test_a_claim_is_as_good_as_its_worst_part() -> None:
    good, open_, bad = (Part("", (side,), "") for side in (F, O, A))
    assert combined([good, good]) == "holds"
    assert combined([good, open_]) == "undecided"
    assert combined([good, open_, bad]) == "does not hold"
    none = Part("", (), "")
    assert combined([good, none]) == "undecided" and combined([none, none]) == combined([]) == "not tested"
    assert combined([bad, none]) == "does not hold"


def test_that_something_can_be_is_shown_by_one_cell_and_refuted_by_none() -> None:
    def can(*cells: Side) -> Part:
        return Part("", cells, "", exists=True)

    assert can(F, A, A).verdict == "holds" and can(A, A).verdict == "undecided" and can().verdict == "not tested"
    assert can(F, A, A).counts == "1 for it and 2 against it, of 3 cells" and can(A).counts.endswith("of 1 cell")


def test_cells_speak_by_the_interval_of_their_differences() -> None:
    above, around, below = np.array([1.0, 1.1, 0.9]), np.array([1.0, -1.1, 0.2]), np.array([-1.0, -1.1, -0.9])
    part = part_of("x", [above, around, below], 1)
    assert part.cells == (F, O, A)
    assert part.counts == "1 for it and 1 against it, of 3 cells"
    assert part.numbers.startswith("the mean is above 0 in 2, and on average +0.0 (95% interval ")
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


def answered_by(published: Path) -> list[Answered]:
    return answer_claims(read_all(read_published(published)))


def answer(published: Path, number: int) -> Answer:
    answered = next(a for a in answered_by(published) if a.claim.number == number)
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
    assert (found.study.on, found.study.worth) == ("nci1", "as in the paper")
    holdouts = answer(tmp_path / "joint", 4)
    assert [len(part.cells) for part in holdouts.parts] == [1, 4] and holdouts.verdict == "holds"
    stopped_study(tmp_path / "other" / "a", "individual", train_fraction=0.5)
    found = answer(tmp_path / "other", 2)
    assert [part.verdict for part in found.parts] == ["holds", "does not hold", "does not hold"]
    assert found.verdict == "does not hold" and found.study.worth == "scaled down"


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
    assert found.parts[1].cells == (A, A) and found.parts[1].verdict == "undecided"  # they can hurt elsewhere


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
    assert found.study.worth == "not in the paper"
    clean, leaking = (part.numbers for part in found.parts[1:])
    assert clean.startswith("leaks: random sign, overlapping ") and "; for control random sign, shared " in clean
    assert "N(1, 0.1²), disjoint " in leaking and leaking.count("%)") == 3
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
    found = answered_by(published)
    assert [bool(answered.answers) for answered in found] == [True] + [False] * 5
    (part,) = found[0].answers[0].parts
    assert part.verdict == "undecided" and "2 replicates are too few to say" in part.numbers
    (tmp_path / "surprises.md").write_text("Nothing did.\n")
    text = write_page(tmp_path).read_text()
    assert "| 5 | Random-sign" in text and "not answered yet: `python studies/batch_ensemble.py --task digits`" in text
    assert "## What surprised us\n\nNothing did.\n" in text
    assert text.count("Beside the paper: ") == 1 and "](published/weight_decay-nci1/figures/nll.png)" in text
    (study,) = read_published(published)
    (one, other) = shown_studies([study, PublishedStudy(copytree(study.path, published / "copy"), study.record)])
    assert one.table_caption.startswith("Mean ± SEM; the difference is ours − the paper's")
    assert other.table_caption == "Table as of [weight_decay-nci1](#weight_decay-nci1)." and other.table == one.table
    rmtree(published / "copy")
    trials = [json.loads(path.read_text())["seconds"] for path in published.glob("*/trials/*/trial.json")]
    assert study.core_hours == pytest.approx(sum(trials) / 3600) and len(trials) == 15
    assert study.title == "Weight decay of a deep ensemble on nci1" and study.table[0].startswith("Beside the paper")
    assert not study.control and PublishedStudy(Path("x"), {"config": {**study.config, "replicates": 1}}).control


@pytest.mark.parametrize(
    ("task", "less", "replicates", "cell", "brief"),
    [
        ("nci1", 0.97, 5, F, "the optimum moves in 97% of the resamples"),
        ("nci1", 0.93, 5, O, "the optimum moves in 93% of the resamples"),
        ("nci1", 0.02, 5, A, "the optimum moves in 2% of the resamples"),
        ("nci1", 0.97, 4, O, "the optimum moves in 97% of the resamples; 4 replicates are too few to say"),
        ("ag_news", 0.02, 5, F, "the optimum moves in 2% of the resamples"),
        ("ag_news-32", 1.0, 5, A, "the BiLSTM's optimum moves too, in 100% of the resamples"),
    ],
)
def test_few_replicates_do_not_answer_where_the_optimum_is(
    task: str, less: float, replicates: int, cell: Side, brief: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shift = Shift((0.2, 0.1, 0.1), less, 1 - less, 0.0, replicates)
    monkeypatch.setattr(claims_weight_decay, "shift_of", lambda _: shift)
    config = {"study": "weight_decay", "task": task, "holdout": 4, "members": 4, "replicates": replicates}
    results: Any = SimpleNamespace(gap={"nll": Estimate.of(np.ones(2))}, objective="nll")
    (part,) = less_decay(PublishedStudy(Path("x"), {"config": config}), results)
    assert (part.cells, part.brief) == ((cell,), brief)
    assert "best for 1 member: 0.2, 2 to 3 members: 0.1;" in part.numbers
    order = PublishedStudy(Path("x"), {"config": config | {"holdout": 2}})
    assert less_decay(order, results) == []
    control = PublishedStudy(Path("x"), {"config": config | {"replicates": 1}})
    assert less_decay(control, results) == []


def test_overlapping_holdouts_are_compared_with_shared_ones_after_a_temperature_too(tmp_path: Path) -> None:
    def predict(spec: TrialSpec, seed: int) -> Made:
        """With overlapping holdouts members see the labels more clearly."""
        assert spec.holdout is not None
        clear = 1.5 if spec.holdout.order == 2 else 0.8
        test = made(spec, 900 + spec.replicates[0], 600, sharpness=clear)
        return {"holdout": made(spec, seed, 600, spec.holdout.order, sharpness=clear), "test": test}

    config = TemperatureConfig("nci1", val_fractions=(0.1, 0.2), holdouts=("4", "2"), replicates=4)
    write_study(tmp_path / "temperature-nci1", config.plan(get_task("nci1")), predict)
    (part,) = answer(tmp_path, 4).parts
    assert part.cells == (F,) and part.numbers.startswith("overlapping − shared at 20%: -0.")
    stopped_study(tmp_path / "early_stopping-nci1", "joint")
    claim = answered_by(tmp_path)[3]
    assert [answer.study.name for answer in claim.answers] == ["early_stopping", "temperature"]
    ((on, together),) = claim.together("as in the paper").items()
    assert on == "nci1" and len(together) == 2 and claim.verdicts("as in the paper") == ["holds"]
    text = write_page(published_reports(tmp_path)).read_text()
    assert "- **NCI1, as in the paper**. Claims that hold: 2, 3, 4; that do not hold: 6; not tested: 1, 5." in text
    assert "**holds** (the mean NLL is lower in 4 of 4 holdouts)" in text
    assert "the NLL is surely lower in 4 of them and surely higher in 0." in text
    assert "overlapping holdouts beat shared ones surely in 1 of 1 large shares" in text


def published_reports(studies: Path) -> Path:
    """A reports folder that has these studies published."""
    reports = studies / "reports"
    for folder in [*studies.glob("*-nci1")]:
        publish(folder, reports / "published" / folder.name)
    return reports


def test_how_near_cells_come_to_the_papers_and_on_which_side(tmp_path: Path) -> None:
    study = PublishedStudy(tmp_path, {})
    assert beside_paper(study) == ""
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "paper.csv").write_text("cell,difference\na,2.0\nb,-2.5\nc,3.25\nd,6.61\ne,\n")
    assert beside_paper(study) == (
        "Beside the paper: 1 of 4 cells lie within 2 combined SEM of the paper's; of the others ours are 2 higher (by "
        "up to 6.6) and 1 lower (by up to 2.5)."
    )
    (tmp_path / "tables" / "paper.csv").write_text("cell,difference\na,-2.0\n")
    assert beside_paper(study) == "Beside the paper: 1 of 1 cells lie within 2 combined SEM of the paper's."
    (tmp_path / "tables" / "paper_equal.csv").write_text("cell,difference\na,-2.0\nb,2.1\n")
    assert beside_paper(study) == (
        "Beside the paper: 1 of 1 cells lie within 2 combined SEM of the paper's. At the paper's own weight decays: 1 "
        "of 2 cells lie within 2 combined SEM of the paper's; of the others ours are 1 higher (by up to 2.1)."
    )
    assert near(study) == "1 of 1 (at the paper's own weight decays 1 of 2)"


def test_a_study_that_was_thinned_says_so() -> None:
    study = PublishedStudy(Path("x"), {"test_points": 500, "data": {"test": 2324}})
    assert study.thinned == ", with 500 of its 2,324 test points"
    assert PublishedStudy(Path("x"), {"data": {"test": 2324}}).thinned == ""


def test_a_smaller_network_on_the_papers_data_is_scaled_down_and_judged_like_the_papers() -> None:
    def study(task: str) -> PublishedStudy:
        return PublishedStudy(Path(f"weight_decay-{task}"), {"config": {"study": "weight_decay", "task": task}})

    scaled_down = [task.scaled_down["laptop"].name for task in map(get_task, PAPER_TASKS) if task.scaled_down]
    assert len(scaled_down) == 3 and not set(scaled_down) & set(PAPER_TASKS)
    assert {study(task).worth for task in scaled_down} == {"scaled down"}
    assert {task for task in scaled_down if study(task).family in UNMOVED} == {"ag_news-32"}
    assert study("digits").worth == "not in the paper"
    assert [study(task).data for task in ("nci1", "nci1-128", "ag_news-32")] == [
        "NCI1",
        "NCI1 (128 features)",
        "AG News",
    ]

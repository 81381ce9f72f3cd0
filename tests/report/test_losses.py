"""Objectives, regressions, greedy selection and advice in a report, from small real trials that need no Ray."""

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from ensgap import metrics
from ensgap.folder import StudyFolder
from ensgap.gap import Choice, Estimate, Selection
from ensgap.greedy import halves
from ensgap.plans.weight_decay import WeightDecayConfig
from ensgap.predictions import Predictions
from ensgap.report import write_report
from ensgap.report.advice import advise, mean_regret, replicates_for_firm_choice, replicates_to_decide
from ensgap.report.alone import advantage, alone_note
from ensgap.results.greedy import read_greedy
from ensgap.results.optima import SettingFigures, StudyResults, read_results
from ensgap.search.run import TrialRun
from ensgap.tasks import get_task

GRID = (0.0, 0.03, 0.3)
Made = Callable[..., StudyFolder]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A finished study whose trials were trained here; every setting is tested, so that any objective can choose."""
    folders: dict[str, StudyFolder] = {}

    def make(task_name: str) -> StudyFolder:
        if task_name not in folders:
            torch.set_num_threads(1)
            task = get_task(task_name)
            data, folder = task.load(None), StudyFolder(tmp_path_factory.mktemp(task_name))
            config = WeightDecayConfig(task_name, members=3, replicates=2, test_replicates=2, epochs=8, grid=GRID)
            plan = config.plan(task)
            for value in GRID:
                setting = {"weight_decay": value}
                list(TrialRun(plan.search_trial(setting), task, data.pool, None, folder).reports(every=99))
                for spec in plan.test_trials(setting):
                    list(TrialRun(spec, task, data.pool, data.test, folder).reports(every=99))
            sizes = {"pool": len(data.pool), "test": len(data.test), "notes": []}
            study = {"config": plan.to_json(), "data": sizes, "command": "python x", "versions": {}, "seconds": 1.0}
            folder.write_study(study)
            folders[task_name] = folder
        return folders[task_name]

    return make


def by(folder: StudyFolder, objective: str) -> StudyFolder:
    """The same trials, selected by another objective."""
    study = folder.read_study()
    folder.write_study(study | {"config": study["config"] | {"objective": objective}})
    return folder


@pytest.mark.parametrize(("task", "objective"), [("diabetes", "nll"), ("diabetes", "rmse"), ("digits", "brier")])
def test_both_optima_minimise_the_objective(made: Made, task: str, objective: str) -> None:
    results = read_results(by(made(task), objective))
    for level, choice in (("avg_member", results.selection.ind), ("ensemble", results.selection.ens)):
        means = [trial.figures[f"{level}_{objective}"].mean() for trial in results.trials]
        assert choice.trial == int(np.argmin(means))


def test_a_regressions_report_has_its_own_words(made: Made) -> None:
    folder = by(made("diabetes"), "rmse")
    write_report(folder)
    text, summary = (folder.report / "report.md").read_text(), json.loads((folder.report / "summary.json").read_text())
    assert "Error (%)" not in text and "ECE" not in text and "percentage points of test error" not in text
    assert "(by validation RMSE)" in text and "Test RMSE" in text and "Coverage error (%)" in text
    assert set(summary["gap"]) == {"nll", "rmse", "coverage"}
    assert summary["objective"] == "rmse"
    assert summary["test"]["ens"]["ambiguity"]["mean"] >= 0
    assert "ensemble_rmse" in (folder.report / "trials.csv").read_text()
    assert len(summary["advice"]["sentences"]) >= 2
    assert "## What to do" in text and 'class="advice"' in (folder.report / "report.html").read_text()


def test_a_classifications_report_by_brier(made: Made) -> None:
    folder = by(made("digits"), "brier")
    write_report(folder)
    text = (folder.report / "report.md").read_text()
    assert "(by validation Brier score)" in text and "Average-member Brier" in text
    assert "| Ensemble | Error (%) | NLL | ECE | Brier | Ambiguity | NLL against the best setting" in text
    assert list((folder.report / "figures").glob("greedy.*"))


@pytest.mark.parametrize("task", ["digits", "diabetes"])
def test_greedy_ensembles_are_measured_where_they_were_not_chosen(made: Made, task: str) -> None:
    folder = by(made(task), "nll")
    results = read_results(folder)
    greedy = read_greedy(folder, results)
    assert greedy is not None
    assert greedy.size == 3 and greedy.replicates == (0, 1)
    assert greedy.shares.sum() == pytest.approx(1)
    for way, curve in greedy.curves.items():
        assert curve.shape == (3, 2)
        np.testing.assert_allclose(curve[-1], greedy.figures[way]["ensemble_nll"], rtol=1e-4)
    # the best single setting, by hand: chosen at one half of each replicate's points, measured at the other
    loaded = [Predictions.load(path / "predictions.npz") for _, path in folder.ended_trials("search")]
    for replicate in (0, 1):
        expected = []
        for measured in (0, 1):
            seen = [np.mean([_nll(p, r, 1 - measured) for r in (0, 1)]) for p in loaded]
            expected.append(_nll(loaded[int(np.argmin(seen))], replicate, measured))
        assert greedy.figures["ens"]["ensemble_nll"][replicate] == pytest.approx(np.mean(expected), rel=1e-5)


def _nll(p: Predictions, row: int, half: int) -> float:
    at = torch.from_numpy(halves(p.labels[row].numpy(), row)[half])
    part = Predictions(
        p.logits[row : row + 1, :, at], p.labels[row : row + 1, at], p.held[row : row + 1, :, at], at[None]
    )
    return float(metrics.evaluate(part)["ensemble_nll"])


def test_members_that_do_not_share_a_holdout_are_not_mixed(made: Made) -> None:
    folder = by(made("digits"), "nll")
    results = read_results(folder)
    assert read_greedy(folder, replace(results, config={**results.config, "holdout": 2})) is None


def figures(setting: float, level: float, replicates: int, wobble: float = 0.0) -> SettingFigures:
    values = level + wobble * np.array([1.0, -1.0] * replicates)[:replicates]
    named = {"avg_member_nll": values, "ensemble_nll": values}
    return SettingFigures({"weight_decay": setting}, "finished", tuple(range(replicates)), named, {}, 10.0 * replicates)


def results_of(
    gap: Estimate, share: float, wobble: float, pairs: int = 10, alone_at_ind: float = 0.99, noise: float = 0.001
) -> StudyResults:
    """Made results: the average member's test NLL is 1 at h*_ens, and that, with so much noise, at h*_ind."""
    trials = (figures(0.1, 1.0, 5), figures(0.2, 1.02, 5, wobble))
    test = {"ind": figures(0.2, alone_at_ind, pairs, noise), "ens": figures(0.1, 1.0, pairs)}
    selection = Selection(Choice(1, share, (1 - share, share)), Choice(0, share, (share, 1 - share)), share)
    config = {"members": 4, "objective": "nll", "val_fraction": 0.1}
    return StudyResults({"seconds": 1.0}, config, trials, selection, test, {"nll": gap})


def test_how_many_test_replicates_would_decide() -> None:
    gap = Estimate.of(np.array([0.03, -0.02, 0.03, -0.02, 0.03, -0.02]))  # undecided
    needed = replicates_to_decide(gap, 6)
    assert needed is not None and needed > 6
    spread = gap.sem * np.sqrt(6)
    draws = np.random.default_rng(0).standard_normal(needed)
    alike = gap.mean + spread * (draws - draws.mean()) / draws.std(ddof=1)  # so many with that mean and spread
    assert Estimate.of(alike).verdict == "positive"
    assert Estimate.of(alike).low < 0.1 * gap.mean  # and only just
    assert replicates_to_decide(Estimate(1e-6, 1.0, -2, 2), 10) is None
    assert replicates_to_decide(Estimate(1.0, 0.1, 0.8, 1.2), 10) == 10


def test_how_many_validation_replicates_would_make_a_choice_firm() -> None:
    sure = replicates_for_firm_choice(results_of(Estimate(0, 0, 0, 0), 1.0, wobble=0.0))
    wobbly = replicates_for_firm_choice(results_of(Estimate(0, 0, 0, 0), 0.7, wobble=0.08))
    assert sure == 5
    assert wobbly is not None and wobbly > 5


@pytest.mark.parametrize(
    ("gap", "share", "words"),
    [
        (
            Estimate(0.02, 0.002, 0.015, 0.025),
            0.99,
            ["set weight decay 0.1; weight decay 0.2 only", "40 test replicates"],
        ),
        (Estimate(0.01, 0.01, -0.01, 0.03), 0.7, ["could not be told apart", "would tell it from 0", "not firm: 70%"]),
        (Estimate(-0.02, 0.002, -0.025, -0.015), 0.99, ["Set weight decay 0.2 even for an ensemble"]),
        (Estimate(0.01, np.nan, np.nan, np.nan), np.nan, ["more than one replicate", "--replicates 5"]),
    ],
)
def test_advice_in_words(gap: Estimate, share: float, words: list[str]) -> None:
    text = " ".join(advise(results_of(gap, share, 0.05), None).sentences)
    for word in words:
        assert word in text, text
    assert "nan" not in text


def test_advice_for_python_names_arguments() -> None:
    results = results_of(Estimate(0.01, 0.01, -0.01, 0.03), 0.7, 0.05)
    text = " ".join(advise(replace(results, config={**results.config, "study": "tune"}), None).sentences)
    assert "resume=True, test_replicates=" in text and "--" not in text


SURE = Estimate(0.02, 0.002, 0.015, 0.025)


def test_advice_for_a_network_that_works_alone_looks_at_its_own_test_figures() -> None:
    better = results_of(SURE, 0.36, 0.05)
    assert advantage(better).verdict == "positive" and advantage(better).mean == pytest.approx(0.01)
    assert "weight decay 0.2 only for a network that works alone" in advise(better, None).sentences[0]
    assert alone_note(better) == []
    worse, unclear = results_of(SURE, 0.36, 0.05, alone_at_ind=1.01), results_of(SURE, 0.36, 0.05, noise=0.1)
    assert advantage(worse).verdict == "negative" and advantage(unclear).verdict == "undecided"
    for results, in_advice, in_note in ((worse, "was clearly worse", "clearly worse at"), (unclear, "no clear", "not")):
        first, (note,) = advise(results, None).sentences[0], alone_note(results)
        assert in_advice in first and f"the average member was {in_note}" in note
        assert first.startswith("For an ensemble of 4 set weight decay 0.1. Even for a network that works alone weight")
        for text in (first, note):
            assert "the gap may partly come from an imprecise h*_ind (36% of resamples of the 5 validation" in text
            assert f"NLL at h*_ens minus at h*_ind is {advantage(results).mean:+.4f} (95% interval" in text


def test_an_h_ind_that_is_repeated_is_not_called_imprecise() -> None:
    (note,) = alone_note(results_of(SURE, 0.99, 0.05, alone_at_ind=1.01))
    assert note.endswith(
        "h*_ind is a firm choice all the same (99% of resamples of the 5 validation replicates repeat it), of networks "
        "trained on 90% of the pool."
    )


def test_advice_names_the_metrics_by_which_the_ensemble_is_better_at_h_ind() -> None:
    results = results_of(SURE, 0.36, 0.05)
    assert "was better" not in advise(results, None).sentences[0]
    results = replace(results, gap={**results.gap, "error": Estimate(-0.02, 0.002, -0.025, -0.015)})
    assert "(by error weight decay 0.2 was better; --objective selects" in advise(results, None).sentences[0]


def test_where_there_is_no_gap_nothing_is_said_of_where_it_comes_from() -> None:
    for gap in (Estimate(0.01, 0.01, -0.01, 0.03), Estimate(0.01, np.nan, np.nan, np.nan)):
        assert alone_note(results_of(gap, 0.36, 0.05, alone_at_ind=1.01)) == []


@pytest.mark.parametrize(
    ("search", "prune", "words"),
    [
        ("grid", False, "(--resume --replicates "),
        ("grid", True, "(a new search with --replicates "),
        ("optuna", False, "(a new search with --replicates "),
    ],
)
def test_a_grid_takes_more_replicates_where_optuna_needs_a_new_search(search: str, prune: bool, words: str) -> None:
    results = results_of(SURE, 0.7, 0.08)
    results = replace(results, config={**results.config, "search": search, "prune": prune})
    (text,) = [sentence for sentence in advise(results, None).sentences if "not firm" in sentence]
    needed = replicates_for_firm_choice(results)
    assert needed is not None and needed > 5
    more = words.startswith("(--resume")
    seconds = 20.0 * (needed - 5 if more else needed)  # two settings, ten seconds a replicate
    assert f"{words}{needed}, about {seconds / 60:.0f} minutes {'more ' * more}of training" in text


def test_the_regret_of_a_choice_that_is_not_firm() -> None:
    results = results_of(Estimate(0.01, 0.01, -0.01, 0.03), 0.7, 0.0)
    assert mean_regret(results) == pytest.approx(0.3 * 0.02)

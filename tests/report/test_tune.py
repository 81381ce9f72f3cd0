"""The report of a search over any space, on figures whose answer is known."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

from ensgap.gap import optimality_gap
from ensgap.hyperparameters import Setting
from ensgap.report.importance import axes_of, importances
from ensgap.report.report import NamedFigure
from ensgap.report.style import save
from ensgap.report.surrogate import Surrogate
from ensgap.report.tune import headline, varying
from ensgap.report.tune_figures import front, tune_figures, usable_trials
from ensgap.report.tune_tables import hyperparameter_table, search_notes
from ensgap.results.optima import SettingFigures, StudyResults, select_settings

SPACE = {"lr": "log(0.001, 1)", "width": "choice(8, 64)", "dropout": "uniform(0, 0.5)", "batch_size": "32"}


def made_results(count: int = 40, space: dict[str, str] | str = SPACE) -> StudyResults:
    """NLL is a parabola in log lr, its minimum at 0.01 for the average member and at 0.1 for the ensemble."""
    rng = np.random.default_rng(0)
    trials = []
    for i in range(count):
        lr = float(10 ** rng.uniform(-3, 0))
        setting: Setting = {"lr": lr, "width": (8, 64)[i % 2], "dropout": float(rng.uniform(0, 0.5)), "batch_size": 32}
        figures = {
            "avg_member_nll": (np.log10(lr) + 2) ** 2 + 1 + 0.01 * rng.normal(size=3),
            "ensemble_nll": (np.log10(lr) + 1) ** 2 + 0.01 * rng.normal(size=3),
        }
        trials.append(SettingFigures(setting, "finished", (0, 1, 2), figures, {}, 1.0))
    wild: Setting = {"lr": 1.0, "width": 8, "dropout": 0.1, "batch_size": 32}
    trials.append(SettingFigures(wild, "diverged", (), {}, {}, 1.0))
    selection = select_settings(trials)
    gap = optimality_gap({"nll": np.array([0.3, 0.2, 0.25])}, {"nll": np.zeros(3)})
    side = SettingFigures({}, "finished", (1000, 1001, 1002), {}, {}, 1.0)
    config = {"task": "made", "members": 4, "space": space}
    return StudyResults({}, config, tuple(trials), selection, {"ind": side, "ens": side}, gap)


def test_the_front_is_what_no_other_point_beats_in_both() -> None:
    x, y = np.array([3.0, 1.0, 2.0, 2.5, 1.0]), np.array([0.5, 3.0, 1.0, 2.0, 4.0])
    assert front(x, y) == [1, 2, 0]


def test_importance_finds_the_one_that_matters() -> None:
    results = made_results()
    axes = axes_of(results)
    assert [axis.name for axis in axes] == ["lr", "width", "dropout"]  # a constant is none
    assert axes[0].log and axes[1].words == ("8", "64")
    for figure in ("avg_member_nll", "ensemble_nll"):
        shares = importances(results, axes, figure)
        assert shares["lr"].mean > 0.8
        assert sum(share.mean for share in shares.values()) == pytest.approx(1.0)


def test_scales_are_guessed_where_the_space_is_a_function() -> None:
    axes = {axis.name: axis for axis in axes_of(made_results(space="function space"))}
    assert axes["lr"].log
    assert not axes["dropout"].log and not axes["dropout"].words


def test_a_slice_has_its_minimum_where_the_objective_has() -> None:
    results = made_results()
    axes = axes_of(results)
    for figure, best in (("avg_member_nll", -2.0), ("ensemble_nll", -1.0)):
        surrogate = Surrogate.fit(usable_trials(results), axes, figure)
        assert surrogate is not None
        places, mean, deviation = surrogate.slice(results.h_ens.setting, axes[0])
        assert places[mean.argmin()] == pytest.approx(best, abs=0.2)
        assert (deviation >= 0).all()
    assert Surrogate.fit(usable_trials(results)[:5], axes, "ensemble_nll") is None


def test_words_are_whole_settings_without_what_never_changes() -> None:
    results = made_results()
    assert set(varying(results, results.h_ind.setting)) == {"lr", "width", "dropout"}
    text = headline(results)
    assert text.startswith("On made, lr 0.008996, width 8, dropout 0.3554 is best for the average member and lr 0.1282")
    assert "of 41 settings tried" in text
    assert "costs the ensemble +0.25" in text


def drawn(results: StudyResults) -> list[NamedFigure]:
    axes = axes_of(results)
    shares = {figure: importances(results, axes, figure) for figure in ("avg_member_nll", "ensemble_nll")}
    return tune_figures(results, axes, shares)


def test_notes_name_what_diverged_and_what_is_at_an_edge() -> None:
    results = made_results(space=SPACE | {"lr": "log(0.001, 0.1283)"})
    first, second = search_notes(results, axes_of(results))
    assert first.startswith("Diverged, and so never selected: 1 of 41 settings, such as lr 1, width 8")
    assert second == (
        "The best lr for the ensemble, 0.1282, is at the upper end of its range: look further with a wider one."
    )


def test_the_hyperparameters_in_a_table() -> None:
    results = made_results()
    shares = {f: importances(results, axes_of(results), f) for f in ("avg_member_nll", "ensemble_nll")}
    rows = {str(row[0]): row for row in hyperparameter_table(results, shares).rows}
    assert list(rows) == ["lr", "width", "dropout", "batch size"]
    assert rows["lr"][1:4] == ("log(0.001, 1)", "0.008996", "0.1282")
    assert [row[-1] for row in rows.values()] == ["yes", "no", "no", "no"]
    assert rows["batch size"][4:6] == ("–", "–")


def test_every_figure_is_drawn(tmp_path: Path) -> None:
    figures = drawn(made_results())
    assert [figure.name for figure in figures] == ["pareto", "slices", "importance"]
    for figure in figures:
        save(figure.figure, tmp_path, figure.name)
        image = plt.imread(tmp_path / f"{figure.name}.png")
        assert image.std() > 0.05
    few = drawn(made_results(3))
    assert [figure.name for figure in few] == ["pareto", "slices"]

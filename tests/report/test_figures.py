"""What figures show: every point where it can be seen, every line explained, one colour for one thing."""

from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from ensgap.gap import Estimate
from ensgap.report import write_report
from ensgap.report.greedy import greedy_figure
from ensgap.report.panels import LOOKS, Line, share_panels
from ensgap.report.report import NamedFigure
from ensgap.report.setting_axis import set_axis
from ensgap.report.style import COLORS
from ensgap.report.tables import bold_of
from ensgap.report.weight_decay_figures import draw_figures
from ensgap.report.words import averaged, axis_label
from ensgap.results.greedy import read_greedy
from ensgap.results.optima import StudyResults, read_results
from tests.report.test_paper import study_of_nci1

METHODS = ("none", "individual", "joint", "joint_per_member", "pooled")
HOLDOUTS = ["shared", "overlapping"]


def design_figure(*shares: float, high: float = 1.0) -> Figure:
    """Five methods with the same figures, but for the first one's at the first share and holdout."""
    some = Estimate(1.0, 0.1, 0.8, 1.2)
    others = [replace(some, mean=1.0 + 0.1 * i) for i in range(1, len(shares))]
    lines = [Line(LOOKS[method], shares, [some, *others]) for method in METHODS]
    first = [replace(lines[0], estimates=[replace(some, mean=high), *others]), *lines[1:]]
    return share_panels({"nll": "Test NLL"}, HOLDOUTS, {("nll", "shared"): first, ("nll", "overlapping"): lines})


def places(figure: Figure) -> list[list[float]]:
    """Of every method's points in the first panel, of its first holdout."""
    found = [bars for bars in figure.axes[0].containers if isinstance(bars, ErrorbarContainer)][: len(METHODS)]
    return [list(np.asarray(bars.lines[0].get_xdata(), float)) for bars in found]


def test_points_of_a_share_stand_side_by_side() -> None:
    shares = (0.01, 0.02, 0.05)
    figure = design_figure(*shares)
    assert len(figure.axes) == len(HOLDOUTS)
    by_share = np.log10(np.array(places(figure)).T)
    for share, at in zip(shares, by_share, strict=True):
        assert np.diff(at).min() > 0.04  # of a power of ten: a marker's width
        assert np.abs(at - np.log10(100 * share)).max() < np.log10(2) / 2
    assert [text.get_text() for text in figure.axes[-1].get_xticklabels()] == ["1", "2", "5"]


def test_with_one_share_holdouts_stand_beside_each_other_and_so_do_methods() -> None:
    figure = design_figure(0.1)
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_xticklabels()] == HOLDOUTS
    found = sorted(place for (place,) in places(figure))
    assert np.diff(found).min() > 0.1 and max(map(abs, found)) < 0.5
    assert "10%" in axes.get_xlabel()


def test_what_is_cut_off_is_said_where_it_is() -> None:
    upper, lower = design_figure(0.1, 0.2, high=50.0).axes
    assert upper.get_title("right") == "▲ cut off above: up to 50" and lower.get_title("right") == ""
    assert design_figure(0.1, 0.2).axes[0].get_title("right") == ""


def test_a_colour_has_one_meaning() -> None:
    assert len(set(COLORS.values())) == len(COLORS)
    assert {look.color for look in LOOKS.values()} <= set(COLORS.values())
    assert len({look.color for look in LOOKS.values()}) == len(LOOKS)


def test_axes_are_named_with_units() -> None:
    assert axis_label("error", "Test") == "Test error (%)" and axis_label("error") == "Error (%)"
    assert axis_label("nll", "Validation") == "Validation NLL (nats)"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> StudyResults:
    return read_results(study_of_nci1(tmp_path_factory.mktemp("figures")))


def named(figures: list[NamedFigure], name: str) -> NamedFigure:
    return next(figure for figure in figures if figure.name == name)


def test_the_values_tried_are_marked_and_every_line_is_explained(results: StudyResults) -> None:
    found = named(draw_figures(results), "nll")
    (axes,), (legend,) = found.figure.axes, found.figure.legends
    lines = [(line.get_marker(), np.asarray(line.get_xdata(), float)) for line in axes.lines]
    assert [len(x) for marker, x in lines if marker == "o"] == [3, 3]  # the average member and the ensemble
    assert sum(len(x) == 2 and x[0] == x[1] for _, x in lines) == 2  # the vertical ones, of the optima
    words = [text.get_text() for text in legend.get_texts()]
    assert {word for word in words if "size" in word} == {
        "average member (size 1)",
        "ensemble (size 4)",
        "sizes 2 and 3",
    }
    assert sum("h^*" in word for word in words) == 2
    assert axes.get_legend() is None  # it stands above the axes, where no line runs
    assert "Dots: the weight decays tried" in found.caption and "± SEM" in found.caption and "//" in found.caption
    low, high = axes.get_ylim()
    means = [trial.figures[f"{level}_nll"].mean() for trial in results.trials for level in ("avg_member", "ensemble")]
    assert low < min(means) and max(means) < high and axes.get_title("right") == ""


def apart(results: StudyResults) -> StudyResults:
    """As if no weight decay were best for the average member."""
    none = next(tested for tested in results.further if tested.weight_decay == 0)
    return replace(results, test={**results.test, "ind": none})


def test_one_optimum_has_no_gap_to_draw(results: StudyResults) -> None:
    assert results.h_ind.setting == results.h_ens.setting
    assert len(named(draw_figures(apart(results)), "gap").figure.axes) == len(results.metrics)
    same = draw_figures(results)
    assert "gap" not in {figure.name for figure in same} and named(same, "size").figure.axes


def test_names_of_weight_decays_do_not_run_into_each_other() -> None:
    def shown(*values: float) -> list[str]:
        axes = Figure().subplots()
        set_axis(axes, values)
        return [text.get_text() for text in axes.get_xticklabels()]

    assert shown(0.0, 0.002, 0.003) == ["0", "0.002", "0.003"]
    assert shown(0.0, 0.002738, 0.002739, 0.003162, 0.005) == ["0", "0.002738", "", "", "0.005"]


def test_hopeless_settings_are_cut_off_and_that_is_said(results: StudyResults) -> None:
    def moved(trial: int, to: float, times: float = 1.0) -> object:
        found = results.trials[trial]
        curves = {**found.curves, "nll": times * found.curves["nll"]}
        return replace(found, setting={"weight_decay": to}, curves=curves)

    trials = (*results.trials, *(moved(1, 0.001 + 0.001 * i) for i in range(1, 5)), moved(1, 0.1, 1000.0))
    figures = draw_figures(replace(results, trials=trials))  # type: ignore[arg-type]
    highest = 1000 * results.trials[1].curves["nll"][0].mean()
    (axes,) = named(figures, "nll").figure.axes
    assert axes.get_ylim()[1] < highest
    assert axes.get_title("right") == f"▲ cut off above: up to {highest:.3g}"


def test_one_test_replicate_has_no_gap_to_draw_no_sem_and_no_bold(tmp_path: Path) -> None:
    folder = study_of_nci1(tmp_path, test_replicates=1)
    assert "gap" not in {figure.name for figure in draw_figures(apart(read_results(folder)))}
    write_report(folder, kinds=("png",))
    text = (tmp_path / "report.md").read_text()
    assert not (tmp_path / "figures" / "gap.png").exists() and "figures/gap.png" not in text
    test = text[text.index("Test data: ensembles retrained") :].split("\n\n")
    assert test[0] == "Test data: ensembles retrained on the whole pool, one replicate." and "**" not in test[1]
    assert "over 1 replicates" not in text
    assert plt.imread(tmp_path / "figures" / "size.png").std() > 0.05


def test_several_test_replicates_have_all_of_it(tmp_path: Path) -> None:
    write_report(study_of_nci1(tmp_path), kinds=("png",))
    text = (tmp_path / "report.md").read_text()
    assert (tmp_path / "figures" / "size.png").exists() and "figures/size.png" in text
    assert "mean ± SEM over 3 replicates. Bold" in text


def test_bold_needs_a_sem() -> None:
    assert averaged(5, 4, 5) == "mean ± SEM over 4 or 5 replicates" and averaged(1, 1) == "one replicate"
    nan = float("nan")
    assert bold_of([Estimate(1.0, nan, nan, nan), Estimate(2.0, nan, nan, nan)]) == [False, False]
    assert bold_of([Estimate(mean, 0.1, 0, 2) for mean in (1.0, 1.1, 2.0)]) == [True, True, False]


def test_members_are_counted_in_whole_numbers(tmp_path: Path) -> None:
    folder = study_of_nci1(tmp_path)
    greedy = read_greedy(folder, read_results(folder))
    assert greedy is not None
    left, right = greedy_figure(greedy).figure.axes
    assert list(left.get_xticks()) == [1, 2, 3, 4]
    assert right.patches[0].get_facecolor() == to_rgba(COLORS["greedy"])

"""The validation figures of a weight-decay study. Orange, dashed: average member and h*_ind. Blue, solid: ensemble and
h*_ens.
"""

import math
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D

from ensgap.gap import Array
from ensgap.report.report import NamedFigure
from ensgap.report.setting_axis import axis_note, positions, set_axis
from ensgap.report.style import COLORS, ENS, IND, STYLE, canvas, legend_above, number, say_cut
from ensgap.report.tested_figures import drawn_tests
from ensgap.report.words import METRIC_WORDS, axis_label
from ensgap.results.optima import SettingFigures, StudyResults

SIZES = LinearSegmentedColormap.from_list("sizes", [IND, "#B9B9B9", ENS])
APART = 0.045
"""Of the height of the axes, between two numbers at the ends of lines."""
DIVERSITY = {
    "classification": "diversity = entropy of the average − average entropy",
    "regression": "diversity = entropy of a Gaussian with the mixture's variance − average entropy",
}


def draw_figures(results: StudyResults) -> list[NamedFigure]:
    """Every figure, in reading order."""
    with matplotlib.rc_context(STYLE):
        notes = f"{axis_note(_values(results))} {_sem_note(results)}"
        diversity = f"What members disagree about, on validation data. {notes}"
        return [
            _sweep(results, results.objective),
            *drawn_tests(results),
            *(_sweep(results, metric) for metric in results.metrics if metric != results.objective),
            NamedFigure("diversity", diversity, _diversity(results)),
        ]


def _sem_note(results: StudyResults) -> str:
    if len(results.h_ind.replicates) < 2:
        return "One replicate, so without bands."
    return "Bands: ± SEM over replicates, after taking out what a replicate's split does to all settings alike."


def _usable(results: StudyResults) -> list[SettingFigures]:
    return [trial for trial in results.trials if trial.usable]


def _values(results: StudyResults) -> list[float]:
    return [trial.weight_decay for trial in _usable(results)]


def within_replicate_sem(values: Array) -> Array:  # [settings, replicates] -> [settings]
    """SEM after removing each replicate's own level, which all settings share (Cousineau and Morey)."""
    settings, replicates = values.shape
    if replicates < 2 or settings < 2:
        return np.zeros(settings)
    centred = values - values.mean(0, keepdims=True)
    sem: Array = centred.std(1, ddof=1) / math.sqrt(replicates) * math.sqrt(settings / (settings - 1))
    return sem


def _sweep(results: StudyResults, metric: str) -> NamedFigure:
    """A validation metric against the setting."""
    words, chosen_by = METRIC_WORDS[metric], METRIC_WORDS[results.objective].name
    figure, axes = canvas(height=4.6)
    values = _values(results)
    x = positions(values)
    curves = words.scale * np.stack([s.curves[metric] for s in _usable(results)])  # [settings, sizes, replicates]
    sizes = curves.shape[1]
    for size in range(2, sizes):
        axes.plot(x, curves[:, size - 1].mean(-1), color=_color(size, sizes), linewidth=0.9, alpha=0.8)
    member = _line(axes, x, curves[:, 0], IND, "--")
    ensemble = _line(axes, x, curves[:, -1], ENS, "-")
    set_axis(axes, values)
    axes.set_ylabel(axis_label(metric, "Validation"))
    zoom(axes, curves[:, [0, -1]].mean(-1))
    optima = _mark_optima(axes, results, x, curves.mean(-1))
    _name_sizes(axes, x[0], curves[0].mean(-1))
    between = tuple(Line2D([], [], color=_color(size, sizes), linewidth=1.2) for size in _some_between(sizes))
    handles = [member, optima[0], ensemble, optima[1], *([between] if between else [])]
    names = [
        "average member (size 1)",
        str(optima[0].get_label()),
        f"ensemble (size {sizes})",
        str(optima[1].get_label()),
    ]
    names += [_between_words(sizes)] if between else []
    legend_above(figure, handles, names, 3 if between else 2, handler_map={tuple: HandlerTuple(ndivide=None, pad=0)})
    caption = (
        f"Validation {words.about}. One line per ensemble size, which stands at its left end where there is room; the "
        f"optima by {chosen_by} are marked. {axis_note(values)} {_sem_note(results)}"
    )
    return NamedFigure(metric, caption, figure)


def _color(size: int, sizes: int) -> str:
    return to_hex(SIZES((size - 1) / (sizes - 1)))


def _some_between(sizes: int) -> list[int]:
    """Up to three of the sizes between, for the legend."""
    return sorted({2, (1 + sizes) // 2, sizes - 1} & set(range(2, sizes)))


def _between_words(sizes: int) -> str:
    return {3: "size 2", 4: "sizes 2 and 3"}.get(sizes, f"sizes 2 to {sizes - 1}, in order")


def _line(axes: Axes, x: Array, values: Array, color: str, dash: str) -> Line2D:  # values: [settings, replicates]
    """A mean with a dot at every setting tried, and its band."""
    mean, sem = values.mean(-1), within_replicate_sem(values)
    axes.fill_between(x, mean - sem, mean + sem, color=color, alpha=0.18, linewidth=0)
    return axes.plot(x, mean, dash + "o", color=color, linewidth=2.2, markersize=4.5)[0]


def _mark_optima(axes: Axes, results: StudyResults, x: Array, means: Array) -> list[Line2D]:  # means: [settings, sizes]
    """A large marker on a vertical line at each; for the legend."""
    found = []
    for chosen, size, marker, color, dash, name in (
        (results.h_ind, 0, "v", IND, "--", "ind"),
        (results.h_ens, -1, "^", ENS, "-", "ens"),
    ):
        i = _usable(results).index(chosen)
        look: dict[str, Any] = {
            "color": color,
            "linestyle": dash,
            "marker": marker,
            "markersize": 10,
            "markeredgecolor": "white",
        }
        axes.axvline(x[i], color=color, linewidth=1, linestyle=dash, alpha=0.5)
        axes.plot(x[i], means[i, size], zorder=5, **look)
        label = rf"$h^*_\mathrm{{{name}}}$ = {number(chosen.weight_decay)}"
        found.append(Line2D([], [], linewidth=1, label=label, **look))
    return found


def _name_sizes(axes: Axes, x: float, values: Array) -> None:  # values: [sizes]
    """Numbers at the left ends of the lines, those of 1, of all and of powers of two first, as far as there is room."""
    low, high = axes.get_ylim()
    sizes = range(1, len(values) + 1)
    placed: list[float] = []
    for size in sorted(sizes, key=lambda size: (size not in (1, len(values)), size & (size - 1) != 0, size)):
        place = float((values[size - 1] - low) / (high - low))
        if place < 1 and all(abs(place - other) > APART for other in placed):
            placed.append(place)
            look: dict[str, Any] = {"color": "0.3", "fontsize": 8, "ha": "right", "va": "center"}
            axes.annotate(str(size), (x, values[size - 1]), (-6, 0), textcoords="offset points", **look)


def zoom(axes: Axes, values: Array) -> None:
    """Show everything, unless hopeless settings would flatten the rest: then say what is cut off."""
    low, high = float(values.min()), float(np.quantile(values, 0.75))
    if values.max() > high + 4 * (high - low) > 0:
        axes.set_ylim(low - 0.15 * (high - low), high + 1.2 * (high - low))
        say_cut(axes, float(values.max()))


def _diversity(results: StudyResults) -> Figure:
    figure, axes = canvas()
    values = _values(results)
    handles = []
    for name, dash in (("ambiguity", "-"), ("diversity", "--")):
        figures = np.stack([s.figures[name] for s in _usable(results)])
        handles.append(_line(axes, positions(values), figures, COLORS[name], dash))
    axes.set_ylabel("Ambiguity, diversity (nats)")
    axes.set_ylim(bottom=0)
    set_axis(axes, values)
    legend_above(figure, handles, ["ambiguity = average-member NLL − ensemble NLL", DIVERSITY[results.loss]], 1)
    return figure

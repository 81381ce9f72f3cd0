"""The figures of a search over any space. Orange, dashed: average member and h*_ind. Blue, solid: ensemble, h*_ens."""

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ensgap.gap import Array
from ensgap.hyperparameters import short
from ensgap.losses import objective_names
from ensgap.report.importance import Axis
from ensgap.report.report import NamedFigure
from ensgap.report.style import ENS, IND, STYLE, canvas, legend_above
from ensgap.report.surrogate import Surrogate
from ensgap.report.tune_tables import Shares
from ensgap.report.words import METRIC_WORDS, axis_label
from ensgap.results.optima import SettingFigures, StudyResults

SIDES = (("ind", "average member", IND, "--", "v"), ("ens", "ensemble", ENS, "-", "^"))
COLUMNS = 3


def tune_figures(results: StudyResults, axes: Sequence[Axis], shares: Shares) -> list[NamedFigure]:
    """Every figure of its own, in reading order."""
    with matplotlib.rc_context(STYLE):
        found = [
            NamedFigure(
                "pareto",
                "Every setting tried, by both objectives on validation data (means over replicates). On the Pareto "
                "front no other setting is better at both; its ends are the two optima.",
                pareto(results),
            ),
            NamedFigure(
                "slices",
                "Slices through both optima: the objective along each hyperparameter. Dots: all settings tried. "
                "Lines: a Gaussian process fitted to them, the other hyperparameters as at the optimum (± its standard "
                "deviation); a guess where dots are far.",
                slices(results, axes),
            ),
        ]
        if all(shares.values()):
            found.append(
                NamedFigure(
                    "importance",
                    "Importance of each hyperparameter for each objective: its share of the variance between the "
                    "settings tried, by fANOVA (Optuna's, 32 trees), ± SEM over replicates.",
                    importance(shares, axes),
                )
            )
        return found


def usable_trials(results: StudyResults) -> list[SettingFigures]:
    """Those that neither diverged nor failed."""
    return [trial for trial in results.trials if trial.usable]


def means(trials: Sequence[SettingFigures], figure: str) -> Array:
    """A figure's mean over replicates, of every setting."""
    return np.array([trial.figures[figure].mean() for trial in trials])


def front(x: Array, y: Array) -> list[int]:
    """The places of the points that no other beats in both, by x."""
    found: list[int] = []
    for i in np.lexsort((y, x)):
        if not found or y[i] < y[found[-1]]:
            found.append(int(i))
    return found


def pareto(results: StudyResults) -> Figure:
    """Average member against ensemble."""
    figure, axes = canvas(7.2, 4.6)
    trials = usable_trials(results)
    words = METRIC_WORDS[results.objective]
    x, y = (words.scale * means(trials, figure) for figure in objective_names(results.objective))
    places = front(x, y)
    axes.scatter(x, y, s=22, color="0.65", label="a setting", zorder=2)
    axes.plot(x[places], y[places], "-o", color="black", markersize=5, linewidth=1.2, label="Pareto front", zorder=3)
    for name, _, color, _, marker in SIDES:
        i = trials.index(results.h_ind if name == "ind" else results.h_ens)
        label = rf"$h^*_\mathrm{{{name}}}$"
        axes.plot(x[i], y[i], marker, color=color, markersize=11, markeredgecolor="white", label=label, zorder=4)
    low, high = min(x.min(), y.min()), max(x.max(), y.max())
    axes.plot([low, high], [low, high], color="0.7", linewidth=0.8, zorder=1, label="no gain from averaging")
    for values, limit in ((x, axes.set_xlim), (y, axes.set_ylim)):
        limit(*_window(values))
    axes.set_xlabel(f"Average member, validation {words.axis}")
    axes.set_ylabel(f"Ensemble, validation {words.axis}")
    handles, names = axes.get_legend_handles_labels()
    legend_above(figure, handles, names, 5)
    return figure


def _window(values: Array) -> tuple[float, float]:
    """From below the best to somewhat above the better three quarters, or to the worst if it is near."""
    low, high = float(values.min()), float(np.quantile(values, 0.75))
    top = min(float(values.max()), high + 1.2 * (high - low))
    margin = 0.08 * (top - low) or 0.01
    return low - margin, top + margin


def slices(results: StudyResults, axes: Sequence[Axis]) -> Figure:
    """A panel for each hyperparameter."""
    columns = min(COLUMNS, len(axes))
    rows = -(-len(axes) // columns)
    figure = Figure(figsize=(max(7.2, 3.3 * columns), 0.6 + 2.7 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    trials = usable_trials(results)
    for panel in list(grid.flat)[len(axes) :]:
        panel.set_visible(False)
    both = objective_names(results.objective)
    for (name, title, color, dash, marker), objective in zip(SIDES, both, strict=True):
        chosen = results.h_ind if name == "ind" else results.h_ens
        surrogate = Surrogate.fit(trials, axes, objective)
        for axis, panel in zip(axes, grid.flat, strict=False):
            _slice(panel, axis, trials, chosen, objective, surrogate, (color, dash, marker), (title, name))
    grid[0][0].set_ylim(*_window(np.concatenate([means(trials, objective) for objective in both])))
    for row in grid:
        row[0].set_ylabel(axis_label(results.objective, "Validation"))
        scale = METRIC_WORDS[results.objective].scale
        row[0].yaxis.set_major_formatter(lambda value, _, scale=scale: f"{scale * value:g}")
    for axis, panel in zip(axes, grid.flat, strict=False):
        _label(panel, axis)
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9)
    return figure


def _slice(
    panel: Axes,
    axis: Axis,
    trials: Sequence[SettingFigures],
    chosen: SettingFigures,
    objective: str,
    surrogate: Surrogate | None,
    look: tuple[str, str, str],
    words: tuple[str, str],
) -> None:
    (color, dash, marker), (title, name) = look, words
    having = [trial for trial in trials if axis.name in trial.setting]
    x = np.array([axis.place(trial.setting[axis.name]) for trial in having])
    panel.scatter(x, means(having, objective), s=11, color=color, alpha=0.55, linewidth=0, label=title)
    if axis.name not in chosen.setting:
        return
    if surrogate is not None:
        places, mean, deviation = surrogate.slice(chosen.setting, axis)
        panel.plot(places, mean, dash, color=color, linewidth=1.6)
        panel.fill_between(places, mean - deviation, mean + deviation, color=color, alpha=0.12, linewidth=0)
    at = axis.place(chosen.setting[axis.name])
    label = rf"$h^*_\mathrm{{{name}}}$"
    best = chosen.figures[objective].mean()
    panel.plot(at, best, marker, color=color, markersize=9, markeredgecolor="white", label=label, zorder=5)


def _label(panel: Axes, axis: Axis) -> None:
    panel.set_xlabel(axis.name.replace("_", " ") + (" (log)" if axis.log else ""))
    if axis.words:
        panel.set_xticks(range(len(axis.words)), axis.words)
        panel.set_xlim(-0.5, len(axis.words) - 0.5)
    elif axis.log:
        low, high = panel.get_xlim()
        decades = np.arange(np.ceil(low), np.floor(high) + 1)
        if len(decades) >= 2:
            panel.set_xticks(decades, [f"$10^{{{int(d)}}}$" for d in decades])
        else:
            ticks = np.linspace(low, high, 5)[1:-1]
            panel.set_xticks(ticks, [short(float(f"{10**tick:.2g}")) for tick in ticks])


def importance(shares: Shares, axes: Sequence[Axis]) -> Figure:
    """Two bars for each hyperparameter, the most important for the ensemble above."""
    ind, ens = shares
    names = sorted((a.name for a in axes if a.name in shares[ens]), key=lambda name: shares[ens][name].mean)
    figure, panel = canvas(7.2, 1.2 + 0.5 * len(names))
    for offset, objective, (_, title, color, _, _) in zip((0.2, -0.2), shares, SIDES, strict=True):
        estimates = [shares[objective][name] for name in names]
        panel.barh(
            np.arange(len(names)) + offset,
            [100 * e.mean for e in estimates],
            0.36,
            xerr=100 * np.nan_to_num([e.sem for e in estimates]),
            color=color,
            hatch="//" if objective == ind else None,
            edgecolor="white",
            capsize=2,
            label=f"for the {title}",
        )
    panel.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
    panel.set_xlabel("Share of the variance (%)")
    panel.set_xlim(0, 100)
    handles, titles = panel.get_legend_handles_labels()
    legend_above(figure, handles, titles, 2)
    return figure

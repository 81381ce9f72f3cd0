"""The figures of a weight-decay study. Orange, dashed: average member and h*_ind. Blue, solid: ensemble and h*_ens."""

import math

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from ensgap.gap import Array, Estimate
from ensgap.hyperparameters import short
from ensgap.report.report import NamedFigure
from ensgap.report.style import ENS, IND, STYLE, canvas, number
from ensgap.report.words import METRIC_WORDS
from ensgap.results.optima import SettingFigures, StudyResults

SIZES = LinearSegmentedColormap.from_list("sizes", [IND, "#B9B9B9", ENS])


def draw_figures(results: StudyResults) -> list[NamedFigure]:
    """Every figure, in reading order."""
    with matplotlib.rc_context(STYLE):
        return [
            _sweep(results, results.objective),
            *drawn_tests(results),
            *(_sweep(results, metric) for metric in results.metrics if metric != results.objective),
            NamedFigure(
                "diversity", "What members disagree about, on validation data. " + SEM_NOTE, _diversity(results)
            ),
        ]


def drawn_tests(results: StudyResults) -> list[NamedFigure]:
    """What test data says, whatever was searched."""
    gap = "The optimality gap on test data: a dot per replicate, the mean and its 95% interval."
    size = (
        f"Test {METRIC_WORDS[results.objective].name} (± SEM) against the size of the ensemble, retrained at both "
        "optima: the lower line is the better choice for an ensemble of that size."
    )
    with matplotlib.rc_context(STYLE):
        return [NamedFigure("gap", gap, _gap(results)), NamedFigure("size", size, _size(results))]


SEM_NOTE = "Bands: ± SEM over replicates, after taking out what a replicate's split does to all settings alike."


DIVERSITY = {
    "classification": "diversity = entropy of the average − average entropy",
    "regression": "diversity = entropy of a Gaussian with the mixture's variance − average entropy",
}


def _usable(results: StudyResults) -> list[SettingFigures]:
    return [trial for trial in results.trials if trial.usable]


def _positions(settings: list[SettingFigures]) -> Array:
    """Where settings stand on a log axis; 0 stands a little left of the smallest value above it."""
    values = np.array([s.weight_decay for s in settings])
    positive = values[values > 0]
    return np.where(values > 0, values, (positive.min() if len(positive) else 1.0) / 4)


def _setting_axis(axes: Axes, settings: list[SettingFigures]) -> None:
    positions = _positions(settings)
    axes.set_xscale("log")
    axes.set_xlabel("Weight decay")
    if settings[0].weight_decay == 0:
        zero = positions[0]
        decades = np.arange(math.ceil(math.log10(zero * 2)), math.floor(math.log10(positions.max()) + 1e-9) + 1)
        ticks, names = list(10.0**decades), [f"$10^{{{int(d)}}}$" for d in decades]
        if len(decades) < 2:
            ticks, names = list(positions[1:]), [number(s.weight_decay) for s in settings[1:]]
        axes.set_xticks([zero, *ticks], ["0", *names])
        axes.set_xticks([], minor=True)
        axes.axvline(zero * 2, color="0.6", linewidth=0.8, linestyle=(0, (1, 3)))


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
    figure, axes = canvas()
    settings = _usable(results)
    x, scale = _positions(settings), words.scale
    curves = scale * np.stack([s.curves[metric] for s in settings])  # [settings, sizes, replicates]
    sizes = curves.shape[1]
    for size in range(1, sizes + 1):
        mean, color = curves[:, size - 1].mean(-1), SIZES((size - 1) / (sizes - 1))
        edge = size in (1, sizes)
        label = {1: "average member (size 1)", sizes: f"ensemble of {sizes}"}.get(
            size, "sizes between" if size == 2 else None
        )
        style = "--" if size == 1 else "-"
        axes.plot(x, mean, style, color=color, linewidth=2.2 if edge else 0.9, alpha=1 if edge else 0.8, label=label)
        if edge:
            sem = within_replicate_sem(curves[:, size - 1])
            axes.fill_between(x, mean - sem, mean + sem, color=color, alpha=0.18, linewidth=0)
    _mark_optima(axes, results, settings, x, curves[:, 0].mean(-1), curves[:, -1].mean(-1))
    axes.set_ylabel(f"Validation {words.axis}")
    _setting_axis(axes, settings)
    _zoom(axes, curves.mean(-1))
    axes.legend(fontsize=9)
    caption = f"Validation {words.about}. One line per ensemble size; the optima by {chosen_by} are marked. {SEM_NOTE}"
    return NamedFigure(metric, caption, figure)


def _mark_optima(
    axes: Axes, results: StudyResults, settings: list[SettingFigures], x: Array, member: Array, ensemble: Array
) -> None:
    for chosen, values, marker, color, name in (
        (results.h_ind, member, "v", IND, "ind"),
        (results.h_ens, ensemble, "^", ENS, "ens"),
    ):
        i = settings.index(chosen)
        label = rf"$h^*_\mathrm{{{name}}}$ = {number(chosen.weight_decay)}"
        axes.axvline(x[i], color=color, linewidth=1, linestyle="--" if name == "ind" else "-", alpha=0.5)
        axes.plot(x[i], values[i], marker, color=color, markersize=10, markeredgecolor="white", label=label, zorder=5)


def _zoom(axes: Axes, values: Array) -> None:
    """Keep hopeless settings from flattening the rest: show up to somewhat above the better three quarters."""
    low, high = values.min(), np.quantile(values, 0.75)
    if values.max() > high + 1.5 * (high - low) > 0:
        axes.set_ylim(low - 0.15 * (high - low), high + 1.2 * (high - low))


def _diversity(results: StudyResults) -> Figure:
    figure, axes = canvas()
    settings = _usable(results)
    x = _positions(settings)
    for name, label, color, style in (
        ("ambiguity", "ambiguity = average-member NLL − ensemble NLL", "#009E73", "-"),
        ("diversity", DIVERSITY[results.loss], "#CC79A7", "--"),
    ):
        values = np.stack([s.figures[name] for s in settings])
        mean, sem = values.mean(-1), within_replicate_sem(values)
        axes.plot(x, mean, style, color=color, linewidth=2.2, label=label)
        axes.fill_between(x, mean - sem, mean + sem, color=color, alpha=0.18, linewidth=0)
    axes.set_ylabel("nats")
    axes.set_ylim(bottom=0)
    _setting_axis(axes, settings)
    axes.legend(fontsize=9)
    return figure


def _gap(results: StudyResults) -> Figure:
    figure = Figure(figsize=(2.4 * len(results.metrics), 2.8), layout="constrained")
    ind, ens = results.test["ind"], results.test["ens"]
    common = sorted(set(ind.replicates) & set(ens.replicates))
    for place, metric in enumerate(results.metrics, start=1):
        axes = figure.add_subplot(1, len(results.metrics), place)
        words = METRIC_WORDS[metric]
        at = [
            np.array([side.figures[f"ensemble_{metric}"][side.replicates.index(r)] for r in common])
            for side in (ind, ens)
        ]
        values = words.scale * (at[0] - at[1])
        estimate = Estimate.of(values)
        spread = np.random.default_rng(0).uniform(-0.12, 0.12, len(values))
        axes.scatter(1 + spread, values, s=16, color="0.6", label="one replicate", zorder=2)
        if not math.isnan(estimate.sem):
            reach = [[estimate.mean - estimate.low], [estimate.high - estimate.mean]]
            axes.errorbar(
                [0.6], [estimate.mean], yerr=reach, fmt="D", color="black", capsize=5, label="mean, 95% interval"
            )
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set_xlim(0.3, 1.3)
        axes.set_xticks([])
        axes.set_title(words.gap.replace(" (", "\n("), fontsize=10)
        if place == 1:
            axes.set_ylabel("Gap: at $h^*_\\mathrm{ind}$ − at $h^*_\\mathrm{ens}$")
            figure.legend(loc="outside lower center", ncols=2, fontsize=9)
    return figure


def _size(results: StudyResults) -> Figure:
    words = METRIC_WORDS[results.objective]
    figure, axes = canvas(height=3.4)
    for name, color, style, marker in (("ind", IND, "--", "v"), ("ens", ENS, "-", "^")):
        tested = results.test[name]
        curve = words.scale * tested.curves[results.objective]
        mean, sem = curve.mean(-1), np.array([Estimate.of(row).sem for row in curve])
        values = [short(value) for value in tested.setting.values()]
        label = rf"trained at $h^*_\mathrm{{{name}}}$" + (f" = {values[0]}" if len(values) == 1 else "")
        axes.errorbar(
            range(1, len(mean) + 1),
            mean,
            yerr=np.nan_to_num(sem),
            fmt=style + marker,
            color=color,
            capsize=3,
            label=label,
        )
    axes.set_xlabel("Ensemble size (members)")
    axes.set_ylabel(f"Test {words.axis}")
    axes.set_xticks(range(1, len(mean) + 1))
    axes.legend(fontsize=9)
    return figure

"""Figures of test data, whatever was searched: the gap, and the ensemble's size."""

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from ensgap.gap import Estimate
from ensgap.hyperparameters import short
from ensgap.report.report import NamedFigure
from ensgap.report.style import ENS, IND, STYLE, canvas, legend_above
from ensgap.report.words import METRIC_WORDS, axis_label, bars
from ensgap.results.optima import StudyResults


def drawn_tests(results: StudyResults) -> list[NamedFigure]:
    """The gap, unless there is but one replicate or one optimum and so nothing to see; and the sizes."""
    gap = "The optimality gap on test data: a dot per replicate, the mean and its 95% interval."
    replicates = min(len(results.test[side].replicates) for side in ("ind", "ens"))
    size = (
        f"Test {METRIC_WORDS[results.objective].name} against the size of the ensemble, retrained at both optima: the "
        f"lower line is the better choice for an ensemble of that size. {bars(replicates)}"
    )
    with matplotlib.rc_context(STYLE):
        apart = results.test["ind"].setting != results.test["ens"].setting
        gaps = [NamedFigure("gap", gap, _gap(results))] if apart and results.pairs > 1 else []
        return [*gaps, NamedFigure("size", size, _size(results))]


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
        reach = [[estimate.mean - estimate.low], [estimate.high - estimate.mean]]
        axes.errorbar([0.6], [estimate.mean], yerr=reach, fmt="D", color="black", capsize=5, label="mean, 95% interval")
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set_xlim(0.3, 1.3)
        axes.set_xticks([])
        axes.set_title(words.gap.replace(" (", "\n("), fontsize=10)
        if place == 1:
            axes.set_ylabel("Gap: at $h^*_\\mathrm{ind}$ − at $h^*_\\mathrm{ens}$")
            figure.legend(loc="outside lower center", ncols=2, fontsize=9)
    return figure


def _size(results: StudyResults) -> Figure:
    scale = METRIC_WORDS[results.objective].scale
    figure, axes = canvas(height=3.4)
    for name, color, style, marker, shift in (("ind", IND, "--", "v", -0.1), ("ens", ENS, "-", "^", 0.1)):
        tested = results.test[name]
        curve = scale * tested.curves[results.objective]
        mean, sem = curve.mean(-1), np.array([Estimate.of(row).sem for row in curve])
        values = [short(value) for value in tested.setting.values()]
        label = rf"trained at $h^*_\mathrm{{{name}}}$" + (f" = {values[0]}" if len(values) == 1 else "")
        axes.errorbar(
            np.arange(1, len(mean) + 1) + shift,  # side by side, not on top of each other
            mean,
            yerr=np.nan_to_num(sem),
            fmt=style + marker,
            color=color,
            capsize=3,
            label=label,
        )
    axes.set_xlabel("Ensemble size (members)")
    axes.set_ylabel(axis_label(results.objective, "Test"))
    axes.set_xticks(range(1, len(mean) + 1))
    handles, names = axes.get_legend_handles_labels()
    legend_above(figure, handles, names, 2)
    return figure

"""Figures of a design: a metric against the validation share, a panel per metric and holdout, a line per method."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ensgap.gap import Estimate
from ensgap.report.style import ENS, IND, STYLE


@dataclass(frozen=True)
class Look:
    """How a line is drawn: told apart by colour, dash and marker."""

    title: str
    color: str
    dash: str
    marker: str


LOOKS = {
    "none": Look("no scaling", "#7F7F7F", ":", "s"),
    "individual": Look("individual", IND, "--", "v"),
    "joint": Look("joint", ENS, "-", "^"),
    "joint_per_member": Look("joint, one T per member", "#009E73", "-.", "D"),
    "pooled": Look("pool, then calibrate", "#CC79A7", "--", "o"),
    "shared_epoch": Look("shared epoch", "#009E73", "-.", "D"),
}
"""Methods that serve one member are orange, those that serve the ensemble blue, in every figure."""


@dataclass(frozen=True)
class Line:
    """One method's estimates over the shares."""

    look: Look
    shares: Sequence[float]
    estimates: Sequence[Estimate]
    scale: float = 1.0


def share_panels(
    metrics: Mapping[str, str], holdouts: Sequence[str], lines: Mapping[tuple[str, str], Sequence[Line]]
) -> Figure:
    """A row of panels per metric (key -> axis title), a column per holdout; lines by (metric, holdout)."""
    with matplotlib.rc_context(STYLE):
        size = (1.2 + 3.0 * max(len(holdouts), 2), 0.7 + 2.1 * len(metrics))
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(len(metrics), len(holdouts), sharex=True, sharey="row", squeeze=False)
        for row, (metric, title) in enumerate(metrics.items()):
            for column, holdout in enumerate(holdouts):
                axes = grid[row][column]
                for line in lines.get((metric, holdout), ()):
                    _draw(axes, line)
                if row == 0:
                    axes.set_title(f"{holdout} holdout", fontsize=10)
                if row == len(metrics) - 1:
                    axes.set_xlabel("Held out by each member (%)")
            grid[row][0].set_ylabel(title)
            _zoom(grid[row][0], [line for holdout in holdouts for line in lines.get((metric, holdout), ())])
        shares = sorted({share for group in lines.values() for line in group for share in line.shares})
        for axes in grid.flat:
            axes.set_xscale("log")
            axes.set_xticks([100 * s for s in shares], [f"{100 * s:g}" for s in shares])
            axes.set_xticks([], minor=True)
        handles = {
            text: handle for axes in grid.flat for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        figure.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=min(len(handles), 5), fontsize=9
        )
        return figure


def _draw(axes: Axes, line: Line) -> None:
    mean = line.scale * np.array([e.mean for e in line.estimates])
    sem = line.scale * np.nan_to_num([e.sem for e in line.estimates])
    look = line.look
    axes.errorbar(
        100 * np.array(line.shares),
        mean,
        yerr=sem,
        fmt=look.dash + look.marker,
        color=look.color,
        markersize=4.5,
        linewidth=1.5,
        capsize=2,
        label=look.title,
    )


def _zoom(axes: Axes, lines: Sequence[Line]) -> None:
    """Keep a method that blew up from flattening the rest: show up to well above the better four fifths."""
    values = np.array([line.scale * e.mean for line in lines for e in line.estimates])
    if len(values):
        low, high = values.min(), np.quantile(values, 0.8)
        if values.max() > high + 6 * (high - low) > 0:
            axes.set_ylim(low - 0.15 * (high - low), high + 1.5 * (high - low))

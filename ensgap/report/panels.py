"""Figures of a design, a line per method: metrics against the validation share, a panel per holdout and metric; where
there is but one share, metrics against the holdout.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ensgap.gap import Array, Estimate
from ensgap.report.style import COLORS, ENS, IND, STYLE, legend_above, say_cut


@dataclass(frozen=True)
class Look:
    """How a line is drawn: told apart by colour, dash and marker."""

    title: str
    color: str
    dash: str
    marker: str


LOOKS = {
    "none": Look("no scaling", COLORS["no scaling"], ":", "s"),
    "individual": Look("individual", IND, "--", "v"),
    "joint": Look("joint", ENS, "-", "^"),
    "joint_per_member": Look("joint, one T per member", COLORS["one T per member"], "-.", "D"),
    "pooled": Look("pool, then calibrate", COLORS["pooled"], "--", "o"),
    "shared_epoch": Look("shared epoch", COLORS["shared epoch"], "-.", "P"),
}
"""Methods that serve one member are orange, those that serve the ensemble blue, in every figure."""


SPREAD = 0.7
"""Of the room between two shares, or two holdouts, over which the methods stand side by side."""
WIDTH = 9.2


@dataclass(frozen=True)
class Line:
    """One method's estimates over the shares."""

    look: Look
    shares: Sequence[float]
    estimates: Sequence[Estimate]
    scale: float = 1.0


Lines = Mapping[tuple[str, str], Sequence[Line]]


def share_panels(metrics: Mapping[str, str], holdouts: Sequence[str], lines: Lines) -> Figure:
    """A column of panels per metric (key -> axis title); lines by (metric, holdout)."""
    shares = sorted({share for group in lines.values() for line in group for share in line.shares})
    with matplotlib.rc_context(STYLE):
        draw = _by_holdout if len(shares) == 1 else _by_share
        figure = draw(metrics, holdouts, lines, shares)
        handles: dict[str, Artist] = {}
        for axes in figure.axes:
            handles |= {text: handle for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)}
        legend_above(figure, list(handles.values()), list(handles), min(len(handles), 5))
        return figure


def _by_share(metrics: Mapping[str, str], holdouts: Sequence[str], lines: Lines, shares: Sequence[float]) -> Figure:
    """A row of panels per holdout."""
    figure = Figure(figsize=(WIDTH, 1.0 + 2.1 * len(holdouts)), layout="constrained")
    grid = figure.subplots(len(holdouts), len(metrics), sharex=True, sharey="col", squeeze=False)
    slots = _slots(lines)
    room = SPREAD * float(np.diff(np.log10(shares)).min())  # in powers of ten
    for column, (metric, title) in enumerate(metrics.items()):
        for row, holdout in enumerate(holdouts):
            axes = grid[row][column]
            for line in lines.get((metric, holdout), ()):
                _draw(axes, line, 100 * np.array(line.shares) * 10 ** (room * slots[line.look.title]))
            axes.set_title(f"{holdout} holdout", loc="left", fontsize=9)
            axes.set_ylabel(title)
            axes.set_xscale("log")
            axes.set_xticks([100 * share for share in shares], [f"{100 * share:g}" for share in shares])
            axes.set_xticks([], minor=True)
        grid[-1][column].set_xlabel("Held out by each member (%)")
        _zoom([grid[row][column] for row in range(len(holdouts))], [lines.get((metric, h), ()) for h in holdouts])
    return figure


def _by_holdout(metrics: Mapping[str, str], holdouts: Sequence[str], lines: Lines, shares: Sequence[float]) -> Figure:
    """One row of panels: each share's figures are points, side by side."""
    figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
    grid = figure.subplots(1, len(metrics), squeeze=False)[0]
    slots = _slots(lines)
    for axes, (metric, title) in zip(grid, metrics.items(), strict=True):
        groups = [lines.get((metric, holdout), ()) for holdout in holdouts]
        for place, group in enumerate(groups):
            for line in group:
                _draw(axes, line, np.array([place + SPREAD * slots[line.look.title]]))
        axes.set_xticks(range(len(holdouts)), holdouts, rotation=20)
        axes.set_xlim(-0.5, len(holdouts) - 0.5)
        axes.set_xlabel(f"Holdout ({100 * shares[0]:g}% held out)")
        axes.set_ylabel(title)
        axes.grid(visible=False, axis="x")
        _zoom([axes], [[line for group in groups for line in group]])
    return figure


def _slots(lines: Lines) -> dict[str, float]:
    """Where each method stands beside a share's place: from -1/2 to 1/2 of the room there."""
    titles = dict.fromkeys(line.look.title for group in lines.values() for line in group)
    return {title: (i + 0.5) / len(titles) - 0.5 for i, title in enumerate(titles)}


def _draw(axes: Axes, line: Line, places: Array) -> None:
    mean = line.scale * np.array([e.mean for e in line.estimates])
    sem = line.scale * np.nan_to_num([e.sem for e in line.estimates])
    look = line.look
    axes.errorbar(
        places,
        mean,
        yerr=sem,
        fmt=look.dash + look.marker,
        color=look.color,
        markersize=4.5,
        linewidth=1.3,
        capsize=2,
        label=look.title,
    )


def _zoom(panels: Sequence[Axes], groups: Sequence[Sequence[Line]]) -> None:
    """Keep a method that blew up from flattening the rest: show up to well above the better four fifths. The panels
    share their axis; each has a group of lines.
    """
    means = [[line.scale * e.mean for line in group for e in line.estimates] for group in groups]
    values = np.array([value for group in means for value in group])
    if not len(values):
        return
    low, high = values.min(), np.quantile(values, 0.8)
    if values.max() > high + 6 * (high - low) > 0:
        panels[0].set_ylim(low - 0.15 * (high - low), high + 1.5 * (high - low))
        for axes, group in zip(panels, means, strict=True):
            say_cut(axes, max(group, default=low))

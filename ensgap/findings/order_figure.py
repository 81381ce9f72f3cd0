"""The figure of the orders: agreement and loss of a k-wise choice, and what orders do on test data."""

from collections.abc import Mapping, Sequence
from typing import Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from ensgap.findings.kwise import Emulated
from ensgap.findings.order_designs import OrderCell
from ensgap.gap import Estimate
from ensgap.report.style import STYLE

GREYS, UPPER_MARKERS = ("#000000", "#666666", "#A0A0A0"), ("^", "D", "o")
DASHES: tuple[Literal["-", "-.", "--"], ...] = ("-", "-.", "--")
"""Of searches, in the upper panels."""
LEGEND = "Share held out (lower panels)"
PALETTE = "viridis"
MARKERS = ("^", "D", "o", "s", "v", "P", "X")
"""Of shares held out, in the lower panels: the larger, the brighter. Filled for the first task, hollow for others."""
CAPTION = (
    "Upper panels: how often the k-wise NLL of one replicate chooses the weight decay that the full ensemble chooses, "
    "and what its choice costs the ensemble in validation NLL; bars are ± SEM over replicates. Lower panels: the "
    "ensemble's test NLL with a holdout of order k minus with a shared one of the same share; bars are 95% intervals. "
    "What is below 0 is better than a shared holdout."
)


def draw(emulated: Mapping[str, Sequence[Emulated]], designs: Mapping[str, Sequence[OrderCell]]) -> Figure:
    """Two panels for the choice of a weight decay, and one for each design that has cells to compare."""
    shown = {study: [c for c in cells if c.difference] for study, cells in designs.items()}
    shown = {study: cells for study, cells in shown.items() if cells}
    with matplotlib.rc_context(STYLE):
        count = 2 * bool(emulated) + len(shown)
        lines = -(-max(count, 1) // 2)
        figure = Figure(figsize=(8.0, 1.2 + 3.0 * lines), layout="constrained")
        panels = list(figure.subplots(lines, 2, squeeze=False).flat)
        for left in panels[count:]:
            left.set_visible(False)
        if emulated:
            handles = _emulated(panels[0], panels[1], emulated)
            figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), fontsize=9)
        looks = _looks([cell for cells in shown.values() for cell in cells])
        for axes, (study, cells) in zip(panels[2 * bool(emulated) :], shown.items(), strict=False):
            _differences(axes, study, cells, looks)
        if looks:
            figure.legend(handles=[*looks.values()], loc="outside lower center", ncols=4, fontsize=9, title=LEGEND)
        return figure


def _emulated(upper: Axes, lower: Axes, emulated: Mapping[str, Sequence[Emulated]]) -> list[Line2D]:
    looks = []
    for i, (title, found) in enumerate(emulated.items()):
        marker, grey = (own[i % len(own)] for own in (UPPER_MARKERS, GREYS))
        dashes = DASHES[i % len(DASHES)]
        looks.append(Line2D([], [], color=grey, marker=marker, linestyle=dashes, markersize=4.5, label=title))
        orders = [e.order for e in found]
        _line(upper, looks[-1], orders, [e.same for e in found], 100.0)
        _line(lower, looks[-1], orders, [e.regret for e in found], 1.0)
    highest = max(e.order for found in emulated.values() for e in found)
    for axes in (upper, lower):
        axes.set_xscale("log", base=2)
        ticks = [k for k in (1, 2, 3, 4, 6, 8, 12, 16) if k <= highest]
        axes.set_xticks(ticks, [str(k) for k in ticks])
        axes.set_xticks([], minor=True)
        axes.set_xlabel("Order k")
    upper.set_ylabel("Same weight decay (%)")
    upper.set_title("Chosen by the k-wise NLL of one replicate", fontsize=10)
    upper.set_ylim(0, 105)
    lower.set_ylabel("Loss of validation NLL (nats)")
    lower.set_title("What that choice costs the ensemble", fontsize=10)
    return looks


def _line(axes: Axes, look: Line2D, x: Sequence[float], values: Sequence[Estimate], scale: float) -> None:
    mean = scale * np.array([value.mean for value in values])
    sem = scale * np.nan_to_num([value.sem for value in values])
    _bars(axes, look, x, mean, sem)


def _bars(axes: Axes, look: Line2D, x: Sequence[float], mean: ArrayLike, reach: ArrayLike) -> None:
    axes.errorbar(
        x,
        mean,
        yerr=reach,
        color=look.get_color(),
        marker=look.get_marker(),
        linestyle=look.get_linestyle(),
        markerfacecolor=look.get_markerfacecolor(),
        markersize=look.get_markersize(),
        capsize=2,
    )


def _looks(cells: Sequence[OrderCell]) -> dict[tuple[str, int, float], Line2D]:
    """How the cells of a task and a share look."""
    groups = sorted({(cell.task, cell.members, cell.share) for cell in cells}, key=lambda g: (g[0] == "digits", *g))
    shares, tasks = sorted({share for *_, share in groups}), list(dict.fromkeys(task for task, *_ in groups))
    colors = matplotlib.colormaps[PALETTE](np.linspace(0.0, 0.85, len(shares)))
    found = {}
    for task, members, share in groups:
        rank = shares.index(share)
        found[task, members, share] = Line2D(
            [],
            [],
            color=matplotlib.colors.to_hex(colors[rank]),
            marker=MARKERS[rank % len(MARKERS)],
            markerfacecolor=None if task == tasks[0] else "white",
            markersize=5.5,
            linestyle="none",
            label=f"{task}, M = {members}, {100 * share:g}%",
        )
    return found


def _differences(
    axes: Axes, study: str, cells: Sequence[OrderCell], looks: Mapping[tuple[str, int, float], Line2D]
) -> None:
    for i, (group, look) in enumerate(looks.items()):
        own = [cell for cell in cells if (cell.task, cell.members, cell.share) == group]
        shift = 0.6 * ((i + 0.5) / len(looks) - 0.5)
        mean = [cell.difference["nll"].mean for cell in own]
        reach = [float(np.nan_to_num(cell.difference["nll"].high - cell.difference["nll"].mean)) for cell in own]
        _bars(axes, look, [cell.order + shift for cell in own], mean, reach)
    axes.axhline(0, color="black", linewidth=0.8)
    orders = sorted({cell.order for cell in cells})
    axes.set_xticks(orders, [f"{k}\n(individual)" if k == 1 else str(k) for k in orders])
    axes.set_xlabel("Order k")
    axes.set_ylabel("Test NLL minus shared (nats)")
    axes.set_title({"early_stopping": "Early stopping", "temperature": "Temperature"}[study], fontsize=10)

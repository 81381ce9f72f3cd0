"""The figure of the orders: agreement and loss of a k-wise choice, and what orders do on test data."""

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ensgap.findings.kwise import Emulated
from ensgap.findings.order_designs import OrderCell
from ensgap.gap import Estimate
from ensgap.report.style import STYLE

COLORS = ("#0072B2", "#009E73", "#CC79A7", "#7F7F7F", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("^", "D", "o", "s", "v", "P", "X")
DASHES = ("-", "-.", "--", ":")


def draw(emulated: Mapping[str, Sequence[Emulated]], designs: Mapping[str, Sequence[OrderCell]]) -> Figure:
    """Two panels for the choice of a weight decay, and one for each design that has cells to compare."""
    shown = {study: [c for c in cells if c.difference] for study, cells in designs.items()}
    shown = {study: cells for study, cells in shown.items() if cells}
    with matplotlib.rc_context(STYLE):
        count = 2 * bool(emulated) + len(shown)
        lines = -(-max(count, 1) // 2)
        figure = Figure(figsize=(8.0, 0.4 + 3.0 * lines), layout="constrained")
        panels = list(figure.subplots(lines, 2, squeeze=False).flat)
        for left in panels[count:]:
            left.set_visible(False)
        if emulated:
            _emulated(panels[0], panels[1], emulated)
        for axes, (study, cells) in zip(panels[2 * bool(emulated) :], shown.items(), strict=False):
            _differences(axes, study, cells)
        return figure


def _emulated(upper: Axes, lower: Axes, emulated: Mapping[str, Sequence[Emulated]]) -> None:
    for i, (title, found) in enumerate(emulated.items()):
        orders = [e.order for e in found]
        _line(upper, i, title, orders, [e.same for e in found], 100.0)
        _line(lower, i, title, orders, [e.regret for e in found], 1.0)
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
    upper.legend(fontsize=9)
    lower.set_ylabel("Validation NLL (nats)")
    lower.set_title("What that choice costs the ensemble", fontsize=10)


def _line(axes: Axes, i: int, title: str, x: Sequence[float], values: Sequence[Estimate], scale: float) -> None:
    mean = scale * np.array([value.mean for value in values])
    sem = scale * np.nan_to_num([value.sem for value in values])
    look = DASHES[i % len(DASHES)] + MARKERS[i % len(MARKERS)]
    axes.errorbar(x, mean, yerr=sem, fmt=look, color=COLORS[i % len(COLORS)], capsize=2, markersize=4.5, label=title)


def _differences(axes: Axes, study: str, cells: Sequence[OrderCell]) -> None:
    groups: dict[tuple[str, int, float], list[OrderCell]] = {}
    for cell in cells:
        groups.setdefault((cell.task, cell.members, cell.share), []).append(cell)
    for i, ((task, members, share), own) in enumerate(groups.items()):
        shift = 0.5 * ((i + 0.5) / len(groups) - 0.5)
        mean = [cell.difference["nll"].mean for cell in own]
        reach = [np.nan_to_num(cell.difference["nll"].high - cell.difference["nll"].mean) for cell in own]
        axes.errorbar(
            [cell.order + shift for cell in own],
            mean,
            yerr=reach,
            fmt=MARKERS[i % len(MARKERS)],
            color=COLORS[i % len(COLORS)],
            capsize=2,
            markersize=4.5,
            label=f"{task}, M = {members}, {100 * share:g}%",
        )
    axes.axhline(0, color="black", linewidth=0.8)
    orders = sorted({cell.order for cell in cells})
    axes.set_xticks(orders, [f"{k}\n(individual)" if k == 1 else str(k) for k in orders])
    axes.set_xlabel("Order k")
    axes.set_ylabel("Test NLL minus shared (nats)")
    axes.set_title({"early_stopping": "Early stopping", "temperature": "Temperature"}[study], fontsize=10)
    axes.legend(fontsize=8)

"""The figures of a temperature study."""

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ensgap.metrics import METRICS
from ensgap.report.design_tables import LEVELS, scale_of
from ensgap.report.panels import LOOKS, Line, share_panels
from ensgap.report.report import NamedFigure
from ensgap.report.style import STYLE, legend_above
from ensgap.report.words import axis_label, bars
from ensgap.results.temperature import Sweep, TemperatureResults

SHOWN = 2.5


def draw_figures(results: TemperatureResults) -> list[NamedFigure]:
    """Every figure, in reading order."""
    return [*_panels(results), _sweep(results)]


def _panels(results: TemperatureResults) -> list[NamedFigure]:
    figures = []
    orders = results.design.orders
    for level, title in LEVELS.items():
        lines: dict[tuple[str, str], list[Line]] = {}
        for order in orders:
            cells = [cell for cell in results.cells if cell.holdout.order == order]
            for variant in [v for v in cells[0].by if not v.prior]:
                if level == "avg_member" and variant.scaling == "pooled":
                    continue  # members are as without scaling
                for metric in METRICS:
                    estimates = [cell.by[variant].estimate(f"{level}_{metric}") for cell in cells]
                    shares = [cell.holdout.fraction for cell in cells]
                    line = Line(LOOKS[variant.scaling], shares, estimates, scale_of(metric))
                    lines.setdefault((metric, results.design.name(order)), []).append(line)
        axes = {metric: axis_label(metric, "Test") for metric in ("error", "nll", "ece")}
        figure = share_panels(axes, [results.design.name(order) for order in orders], lines)
        said = bars(min(len(cell.replicates) for cell in results.cells), "Methods stand side by side; bars")
        caption = f"Test figures of the {title} after each scaling (plain fits). {said}"
        figures.append(NamedFigure(level, caption, figure))
    return figures


def _around(axes: Axes, sweep: Sweep, metric: str) -> None:
    """Show the temperatures within a factor of the best one."""
    best = sweep.temperatures[int(sweep.curves["joint"]["nll"].argmin())]
    near = (sweep.temperatures >= best / SHOWN) & (sweep.temperatures <= best * SHOWN)
    values = scale_of(metric) * np.concatenate([curve[metric][near] for curve in sweep.curves.values()])
    margin = 0.06 * (values.max() - values.min()) or 0.1
    axes.set_ylim(values.min() - margin, values.max() + margin)
    axes.set_xscale("log")
    axes.set_xlim(best / SHOWN, best * SHOWN)
    ticks = [t for t in (0.1, 0.25, 0.5, 1, 2, 4, 8) if best / SHOWN <= t <= best * SHOWN]
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.set_xticks([], minor=True)


def _nearest_minimum(values: NDArray[np.float64], place: int) -> int:
    """Where the values are lowest; of several such places, the one nearest to `place`."""
    lowest = np.flatnonzero(values == values.min())
    return int(lowest[np.abs(lowest - place).argmin()])


def _sweep(results: TemperatureResults) -> NamedFigure:
    sweep = results.sweep
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 2.9), layout="constrained")
        for place, metric in enumerate(("nll", "error", "ece"), start=1):
            axes = figure.add_subplot(1, 3, place)
            for scaling, size in (("joint", 10), ("pooled", 5)):  # both are seen where they coincide
                look, curve = LOOKS[scaling], sweep.curves[scaling]
                values, at = scale_of(metric) * curve[metric], int(curve["nll"].argmin())
                lowest = _nearest_minimum(values, at)
                axes.plot(sweep.temperatures, values, look.dash, color=look.color, linewidth=1.8, label=look.title)
                axes.axvline(sweep.temperatures[at], color=look.color, linestyle=look.dash, linewidth=0.9, alpha=0.6)
                axes.plot(sweep.temperatures[lowest], values[lowest], look.marker, color=look.color, markersize=size)
            _around(axes, sweep, metric)
            axes.set_xlabel("Temperature")
            axes.set_title(axis_label(metric, "Test"), fontsize=10)
        handles, names = axes.get_legend_handles_labels()
        legend_above(figure, handles, names, 2)
    where = results.design.where(sweep.holdout)
    caption = (
        f"The ensemble on test data at every temperature ({where}, mean over replicates), scaled before averaging "
        "(joint) or after (pool, then calibrate). Markers: each curve's lowest value; vertical lines: the temperature "
        "of the lowest NLL."
    )
    return NamedFigure("sweep", caption, figure)

"""The figure of the gap by size."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ensgap.findings.words import ENS_MATH, IND_MATH
from ensgap.gap import Estimate
from ensgap.report.style import STYLE

CAPTION = (
    "What the setting of one network costs ensembles of m members on test data. Bars: 95% intervals over paired test "
    "replicates, or over the ensembles pooled from them where m is above the M of the title."
)
LOOKS = (
    (f"at {IND_MATH} minus at {ENS_MATH}(m), the gap", "#000000", "-o", 0.96),
    (f"at {IND_MATH} minus at {ENS_MATH}(M)", "#7F7F7F", "--s", 1.04),
)
Lines = tuple[Sequence[tuple[int, Estimate]], Sequence[tuple[int, Estimate]]]
"""The gap by size, and the difference between the same two settings by size."""


def draw(results: Mapping[str, Lines]) -> Figure:
    """Both against the size, a panel per title."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(1.0 + 3.6 * max(len(results), 2), 3.9), layout="constrained")
        panels = figure.subplots(1, len(results), squeeze=False)[0]
        for axes, (title, lines) in zip(panels, results.items(), strict=True):
            for (name, color, look, shift), values in zip(LOOKS, lines, strict=True):
                _line(axes, values, shift, fmt=look, color=color, label=name)
            axes.axhline(0, color="black", linewidth=0.8)
            axes.set_xscale("log", base=2)
            sizes = sorted({size for values in lines for size, _ in values})
            axes.set_xticks(sizes, [str(size) for size in sizes])
            axes.set_xticks([], minor=True)
            axes.set_xlabel("Members m")
            axes.set_title(title, fontsize=10)
        panels[0].set_ylabel("Difference of test NLL (nats)")
        handles, names = panels[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=2, fontsize=9)
        return figure


def _line(axes: Axes, values: Sequence[tuple[int, Estimate]], shift: float, **look: Any) -> None:
    if values:
        reach = [float(np.nan_to_num(e.high - e.mean)) for _, e in values]
        x = [shift * size for size, _ in values]
        axes.errorbar(x, [e.mean for _, e in values], yerr=reach, capsize=3, markersize=5, **look)

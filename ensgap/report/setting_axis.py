"""The axis of weight decays: logarithmic, with 0 at its left end beyond a break."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from ensgap.gap import Array
from ensgap.report.style import number

AXIS_NOTE = "Dots: the weight decays tried"
BREAK = 4.0
"""0 stands so many times left of the smallest value above it."""
NAME_WIDTH = 0.13
"""The share of the axis that a value's name takes."""


def positions(values: Sequence[float]) -> Array:
    """Where weight decays stand on a log axis; 0 stands a little left of the smallest value above it."""
    found = np.array(values)
    positive = found[found > 0]
    return np.where(found > 0, found, (positive.min() if len(positive) else 1.0) / BREAK)


def axis_note(values: Sequence[float]) -> str:
    """What a caption says of it."""
    return AXIS_NOTE + ("; // marks the break between 0 and the logarithmic scale." if 0 in values else ".")


def _apart(places: Array, names: Sequence[str]) -> list[str]:
    """The names of all places but the first, blank where one would run into the name to its left."""
    at = np.log(places / places[0])
    found, last = [], 0.0
    for here, name in zip(at[1:], names, strict=True):
        found.append(name if here - last > NAME_WIDTH * at[-1] else "")
        last = here if found[-1] else last
    return found


def set_axis(axes: Axes, values: Sequence[float]) -> None:
    """Name it, and set its ticks."""
    places = positions(values)
    axes.set_xscale("log")
    axes.set_xlabel("Weight decay")
    if values[0] != 0:
        return
    zero = places[0]
    decades = np.arange(math.ceil(math.log10(zero * 2)), math.floor(math.log10(places.max()) + 1e-9) + 1)
    ticks, names = list(10.0**decades), [f"$10^{{{int(d)}}}$" for d in decades]
    if len(decades) < 2:
        ticks, names = list(places[1:]), _apart(places, [number(value) for value in values[1:]])
    axes.set_xticks([zero, *ticks], ["0", *names])
    axes.set_xticks([], minor=True)
    mark = axes.text(zero * math.sqrt(BREAK), 0, "//", transform=axes.get_xaxis_transform(), ha="center", va="center")
    mark.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.5})

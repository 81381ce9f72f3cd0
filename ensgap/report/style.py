"""How figures look: the same colours for the same thing everywhere, legible without colour."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

IND, ENS = "#D55E00", "#0072B2"
"""Orange, dashed: average member, individual, h*_ind. Blue, solid: ensemble, joint, h*_ens."""
COLORS = {
    "ind": IND,
    "ens": ENS,
    "no scaling": "#7F7F7F",
    "one T per member": "#56B4E9",
    "pooled": "#CC79A7",
    "shared epoch": "#009E73",
    "greedy": "#882255",
    "ambiguity": "#8C510A",
    "diversity": "#999933",
    "training points": "#332288",
    "own holdout": "#E69F00",
    "test data": "#000000",
}
"""A colour has one meaning in all figures; within one, markers and dashes tell lines apart too."""
KINDS = ("png", "pdf")
"""Of a figure's files."""
STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "figure.dpi": 100,
    "savefig.dpi": 160,
    "pdf.fonttype": 42,
}


def canvas(width: float = 7.2, height: float = 4.2) -> tuple[Figure, Axes]:
    """A figure with one pair of axes."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def save(figure: Figure, folder: Path, name: str, kinds: Sequence[str] = KINDS) -> None:
    """As PNG and PDF, without dates, so that the same figure gives the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    undated: dict[str, Any] = {"pdf": {"CreationDate": None, "Producer": None, "Creator": None}}
    with matplotlib.rc_context(STYLE):
        for kind in kinds:
            figure.savefig(folder / f"{name}.{kind}", metadata=undated.get(kind, {"Software": None}))
            if kind == "png":
                shrink(folder / f"{name}.png")


def shrink(path: Path) -> None:
    """Give a picture a palette of 256 colours, which is all that lines and letters need and a third of the bytes."""
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    small.save(path, optimize=True)


def legend_above(figure: Figure, handles: Sequence[Any], names: Sequence[str], columns: int, **options: Any) -> None:
    """Over all panels, where no line runs."""
    figure.legend(handles, names, loc="outside upper center", ncols=columns, fontsize=9, **options)


def say_cut(axes: Axes, highest: float) -> None:
    """Say so if something lies above what is shown."""
    if highest > axes.get_ylim()[1]:
        axes.set_title(f"▲ cut off above: up to {highest:.3g}", loc="right", fontsize=8)


def number(value: float) -> str:
    """A setting's value, short: 0, 0.003, 1e-05."""
    return f"{value:.4g}"

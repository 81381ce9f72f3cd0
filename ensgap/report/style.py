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
NAMES = {"nll": "NLL (nats)", "error": "Error (%)", "ece": "ECE"}
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


def number(value: float) -> str:
    """A setting's value, short: 0, 0.003, 1e-05."""
    return f"{value:.4g}"

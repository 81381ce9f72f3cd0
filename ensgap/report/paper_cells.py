"""Our figures beside the paper's, cell by cell: how far apart they are, in units of the combined SEM."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ensgap.gap import Estimate
from ensgap.report.report import Card, json_number
from ensgap.report.tables import Cell, Column, Marked, Table

HEADS = {"table": "Table", "cell": "Cell"}
"""Over the names of `cells_beside`."""
NEAR = 2.0
"""Combined SEMs within which a cell counts as repeated."""


@dataclass(frozen=True)
class PaperCell:
    """A figure that both have; `names` say which."""

    names: tuple[str, ...]
    ours: Estimate
    paper: tuple[str, str]  # mean and SEM as printed, in units of `scale`
    digits: int
    scale: float

    @property
    def theirs(self) -> Estimate:
        """The paper's, in our units."""
        mean, sem = (float(text) / self.scale for text in self.paper)
        return Estimate(mean, sem, math.nan, math.nan)

    @property
    def distance(self) -> float:
        """Ours minus the paper's over sqrt(SEM² + SEM²); NaN where one replicate gives no SEM."""
        combined = math.hypot(self.ours.sem, self.theirs.sem)
        return (self.ours.mean - self.theirs.mean) / combined if combined > 0 else math.nan


def cells_beside(tables: Sequence[Table]) -> list[PaperCell]:
    """Those that stand beside each other in a report's tables."""
    found = []
    for table in tables:
        for row in table.rows:
            texts = [cell for cell in row if isinstance(cell, str) and cell != "–"]
            for column, cell in zip(table.columns, row, strict=True):
                if isinstance(cell, Marked) and cell.paper:
                    names = (table.name, ", ".join([*texts, column.full_title]))
                    digits = column.digits if cell.digits is None else cell.digits
                    found.append(PaperCell(names, cell.estimate, cell.paper, digits, cell.scale or column.scale))
    return found


def sentence(cells: Sequence[PaperCell]) -> str:
    """How many cells came out as in the paper, and on which side of it the others lie."""
    others = _others(cells)
    return (
        f"{count_near(cells)} of {_known(cells)} cells within {NEAR:g} combined SEM of the paper's"
        f"{f'; of the others, {others}' if others else ''}."
    )


def _others(cells: Sequence[PaperCell]) -> str:
    """On which side of the paper's the cells out of reach lie; nothing if there are none."""
    if count_near(cells) == _known(cells):
        return ""
    return f"{count_above(cells)} ours higher, {count_below(cells)} ours lower"


def count_above(cells: Sequence[PaperCell]) -> int:
    """Those where ours is higher, beyond reach."""
    return sum(cell.distance > NEAR for cell in cells)


def count_below(cells: Sequence[PaperCell]) -> int:
    """Those where ours is lower, beyond reach."""
    return sum(cell.distance < -NEAR for cell in cells)


def count_near(cells: Sequence[PaperCell]) -> int:
    """Those within reach."""
    return sum(abs(cell.distance) <= NEAR for cell in cells)


def _known(cells: Sequence[PaperCell]) -> int:
    return sum(not math.isnan(cell.distance) for cell in cells)


def paper_cards(cells: Sequence[PaperCell]) -> list[Card]:
    """A number to see first, if there are cells to compare."""
    if not _known(cells):
        return []
    others = _others(cells)
    below = f"cells within {NEAR:g} combined SEM{f'; of the others, {others}' if others else ''}"
    return [Card("as in the paper", f"{count_near(cells)} of {_known(cells)}", below)]


def paper_tables(
    cells: Sequence[PaperCell], heads: Mapping[str, str], name: str = "paper", start: str = "Beside the paper"
) -> list[Table]:
    """One table, a row per cell; `heads` are the keys and titles over the cells' names. None without cells."""
    if not cells:
        return []
    rows: list[tuple[Cell, ...]] = []
    for cell in cells:
        ours = Marked(cell.ours, digits=cell.digits, scale=cell.scale)
        theirs = Marked(cell.theirs, digits=max(0, len(cell.paper[0].partition(".")[2])), scale=cell.scale)
        rows.append((*cell.names, ours, theirs, cell.distance))
    columns = (
        *(Column(key, title) for key, title in heads.items()),
        Column("ours", "Ours"),
        Column("paper", "Paper"),
        Column("difference", "Difference (combined SEM)", 1),
    )
    caption = (
        f"{start}: {sentence(cells)} Mean ± SEM; the difference is ours − the paper's, over the root of the "
        f"sum of both squared SEMs. Bold: beyond {NEAR:g}."
    )
    far = frozenset((i, "difference") for i, cell in enumerate(cells) if abs(cell.distance) > NEAR)
    return [Table(name, caption, columns, tuple(rows), far)]


def paper_summary(cells: Sequence[PaperCell], name: str = "paper") -> dict[str, Any]:
    """For summary.json; nothing without cells."""
    if not cells:
        return {}
    rows = [
        {
            "cell": " / ".join(cell.names),
            "ours": json_number(cell.ours.mean),
            "sem": json_number(cell.ours.sem),
            "paper": cell.theirs.mean,
            "paper_sem": cell.theirs.sem,
            "difference": json_number(cell.distance),
        }
        for cell in cells
    ]
    counts = {"within_2_combined_sem": count_near(cells), "higher": count_above(cells), "lower": count_below(cells)}
    return {name: {"cells": _known(cells), **counts, "rows": rows}}

"""Tables that the studies of a design share."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from ensgap.gap import Estimate
from ensgap.report.paper import Figure, paper_figure
from ensgap.report.tables import Cell, Column, Marked, Table, bold_of

Best = Literal["lowest", "highest", "none"]
LEVELS = {"ensemble": "ensemble", "avg_member": "average member"}
TITLES = {"error": "Error (%)", "nll": "NLL", "ece": "ECE"}
DIGITS = {"error": 2, "nll": 4, "ece": 4, "diversity": 4, "entropy": 4, "epochs": 1}


def averaged(config: Mapping[str, Any]) -> str:
    """What stands in the cells."""
    return "mean ± SEM over replicates" if config["replicates"] > 1 else "one replicate"


def bold_note(config: Mapping[str, Any]) -> str:
    """What bold means; nothing is bold where one replicate gives no SEM."""
    return " Bold: within 1.96 SEM of the best of its row." if config["replicates"] > 1 else ""


def scale_of(metric: str) -> float:
    """Errors are shown in percent."""
    return 100.0 if metric == "error" else 1.0


def rows_table(
    name: str,
    caption: str,
    rows: Sequence[tuple[str, ...]],
    heads: Sequence[str],
    columns: Sequence[Column],
    cell: Callable[[int, str], Marked | None],
    best: Callable[[int], Best] = lambda _: "lowest",
    apart: Sequence[str] = (),
) -> Table:
    """A table of marked estimates, whose rows begin with texts (under `heads`); what is best is bold along each row,
    the columns `apart` left out of the comparison.
    """
    body: list[tuple[Cell, ...]] = []
    bold: set[tuple[int, str]] = set()
    for i, texts in enumerate(rows):
        found = [cell(i, column.key) for column in columns]
        known = {c.key: v.estimate for c, v in zip(columns, found, strict=True) if v is not None and c.key not in apart}
        if known and best(i) != "none":
            good = bold_of(list(known.values()), highest=best(i) == "highest")
            bold |= {(i, key) for key, is_good in zip(known, good, strict=True) if is_good}
        body.append((*texts, *("–" if value is None else value for value in found)))
    first = tuple(Column(head.lower().replace(" ", "_"), head) for head in heads)
    return Table(name, caption, (*first, *columns), tuple(body), frozenset(bold))


def marked(estimate: Estimate, metric: str, paper: Figure | None = None, mark: str = "") -> Marked:
    """An estimate in the units and digits of its metric."""
    return Marked(estimate, paper, mark, DIGITS[metric], scale_of(metric))


def beside(config: Mapping[str, Any], study: str, **cell: Any) -> Figure | None:
    """The paper's figure for a cell, where this study repeats it."""
    return paper_figure(study, config["task"], **cell) if config["as_paper"] else None


def paper_note(config: Mapping[str, Any]) -> str:
    """What a caption says of the paper's figures, where they stand beside ours."""
    return " (paper …): its figure for the same cell." if config["as_paper"] else ""


def percent(fraction: float) -> str:
    """A share as people write it."""
    return f"{100 * fraction:g}%"


def gap_table(caption: str, rows: Sequence[tuple[str, str, Mapping[str, Estimate]]]) -> Table:
    """Optimality gaps: a row per holdout, share and metric."""
    body: list[tuple[Cell, ...]] = []
    for holdout, share, gap in rows:
        for metric, e in gap.items():
            scale = scale_of(metric)
            mean, low, high = (f"{v * scale:+.5f}" if v == v else "–" for v in (e.mean, e.low, e.high))
            sem = f"{e.sem * scale:.5f}" if e.sem == e.sem else "–"
            body.append((holdout, share, TITLES[metric], mean, sem, low, high, e.verdict))
    keys = ("holdout", "val", "metric", "gap", "sem", "ci95_low", "ci95_high", "verdict")
    titles = ("Holdout", "Held out", "Metric", "Gap", "SEM", "95% from", "to", "Verdict")
    return Table("gap", caption, tuple(Column(k, t) for k, t in zip(keys, titles, strict=True)), tuple(body))


def tidy_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Everything in one long table, a figure per row, for programs."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()

"""Tables that the studies of a design share."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ensgap.gap import Estimate, not_worse_than_best
from ensgap.report.paper import Figure, paper_figure
from ensgap.report.tables import Cell, Column, Marked, Table

LEVELS = {"ensemble": "ensemble", "avg_member": "average member"}
TITLES = {"error": "Error (%)", "nll": "NLL", "ece": "ECE"}
DIGITS = {"error": 2, "nll": 4, "ece": 4, "diversity": 4, "entropy": 4, "epochs": 1}
PAPER_NOTE = "(paper …): its figure for the same cell."
BOLD = "Bold: within 1.96 SEM of the best of its row."


def scale_of(metric: str) -> float:
    """Errors are shown in percent."""
    return 100.0 if metric == "error" else 1.0


def rows_table(
    name: str,
    caption: str,
    rows: Sequence[tuple[str, ...]],
    heads: Sequence[str],
    columns: Mapping[str, str],
    cell: Callable[[int, str], Marked | None],
    bold: Callable[[int], bool] = lambda _: True,
) -> Table:
    """A table of marked estimates: rows given by their first texts (under `heads`), columns by key and title; bold is
    decided along each row, where asked.
    """
    body: list[tuple[Cell, ...]] = []
    marks: set[tuple[int, str]] = set()
    for i, texts in enumerate(rows):
        found = {key: cell(i, key) for key in columns}
        known = {key: value for key, value in found.items() if value is not None}
        if known and bold(i):
            best = not_worse_than_best([value.estimate for value in known.values()])
            marks |= {(i, key) for key, good in zip(known, best, strict=True) if good}
        body.append((*texts, *(value if value is not None else "–" for value in found.values())))
    first = tuple(Column(head.lower().replace(" ", "_").replace("(%)", "pct"), head) for head in heads)
    return Table(name, caption, (*first, *(Column(k, t) for k, t in columns.items())), tuple(body), frozenset(marks))


def marked(estimate: Estimate, metric: str, paper: Figure | None = None, mark: str = "") -> Marked:
    """An estimate in the units and digits of its metric."""
    return Marked(estimate, paper, mark, DIGITS[metric], scale_of(metric))


def beside(config: Mapping[str, Any], study: str, **cell: Any) -> Figure | None:
    """The paper's figure for a cell, where this study repeats it."""
    return paper_figure(study, config["task"], **cell) if config["as_paper"] else None


def percent(fraction: float) -> str:
    """A share as people write it."""
    return f"{100 * fraction:g}%"


def gap_table(caption: str, rows: Sequence[tuple[str, str, Mapping[str, Estimate]]]) -> Table:
    """Optimality gaps: a row per holdout, share and metric."""
    body: list[tuple[Cell, ...]] = []
    for holdout, share, gap in rows:
        for metric, e in gap.items():
            scale = scale_of(metric)
            numbers = [f"{v * scale:+.5f}" if v == v else "–" for v in (e.mean, e.sem, e.low, e.high)]
            body.append((holdout, share, TITLES[metric], *numbers, e.verdict))
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

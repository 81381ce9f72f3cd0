"""Tables of the findings: written as CSV beside the figures, and shown as markdown."""

from dataclasses import replace
from pathlib import Path

from ensgap.gap import Estimate
from ensgap.report.tables import Cell, Column, Table, escape_markdown


def write_table(table: Table, folder: Path, title: str) -> str:
    """Its CSV file goes into the folder; its caption and rows come back as markdown, to unfold below the title."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{table.name}.csv").write_text(table.csv())
    columns = tuple(replace(column, title=escape_markdown(column.title)) for column in table.columns)
    rows = replace(table, columns=columns).markdown()
    return f"<details><summary>{title}</summary>\n\n{escape_markdown(table.caption)}\n\n{rows}\n\n</details>"


def interval_columns(key: str, title: str, digits: int = 4, scale: float = 1.0) -> tuple[Column, ...]:
    """An estimate and the ends of its 95% interval."""
    ends = (Column(f"{key}_{end}", name, digits, scale) for end, name in (("low", "95% from"), ("high", "to")))
    return Column(key, title, digits, scale), *ends


def interval_cells(estimate: Estimate | None) -> tuple[Cell, ...]:
    """What stands in these columns."""
    return ("–", "–", "–") if estimate is None else (estimate, estimate.low, estimate.high)

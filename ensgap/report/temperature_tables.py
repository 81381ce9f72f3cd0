"""The tables of a temperature study."""

from typing import Any

import numpy as np

from ensgap.gap import Estimate
from ensgap.report.design_tables import (
    BOLD,
    LEVELS,
    TITLES,
    beside,
    gap_table,
    marked,
    percent,
    rows_table,
)
from ensgap.report.panels import LOOKS
from ensgap.report.tables import Marked, Table
from ensgap.results.temperature import TemperatureCell, TemperatureResults, Variant

PAPERS = ("none", "individual", "joint")
BOUND_NOTE = "† n%: in that share of the fits the temperature sat on its bound, for want of a finite optimum."


def main_tables(results: TemperatureResults) -> list[Table]:
    """The paper's tables, and the gaps."""
    levels = [_paper_table(results, level, metric) for level in LEVELS for metric in ("error", "nll", "ece")]
    return [*levels, _gaps(results)]


def more_tables(results: TemperatureResults) -> list[Table]:
    """Every scaling, and the temperatures found."""
    return [*_all_scalings(results), _temperatures(results)]


def title_of(variant: Variant) -> str:
    """A variant in words."""
    return LOOKS[variant.scaling].title + (", with prior" if variant.prior else "")


def _cell(results: TemperatureResults, cell: TemperatureCell | None, variant: Variant, figure: str) -> Marked | None:
    if cell is None or variant not in cell.by:
        return None
    level, metric = figure.rsplit("_", 1)
    scaled = cell.by[variant]
    share = scaled.at_bound.mean()
    paper = None
    if not variant.prior:
        paper = beside(
            results.design.config,
            "temperature",
            level=level,
            setting=f"scaling={variant.scaling}",
            holdout=results.design.name(cell.holdout.order),
            fraction=cell.holdout.fraction,
            metric=metric,
        )
    return marked(scaled.estimate(figure), metric, paper, f" † {share:.0%}" if share else "")


def _paper_table(results: TemperatureResults, level: str, metric: str) -> Table:
    """As in the paper: a row per validation share, no scaling, individual and joint by holdout."""
    shares, orders = results.design.shares, results.design.orders
    columns = {
        f"{scaling}/{order}": f"{LOOKS[scaling].title}, {results.design.name(order)}"
        for scaling in PAPERS
        for order in orders
    }

    def cell(row: int, key: str) -> Marked | None:
        scaling, order = key.split("/")
        where = results.cell(int(order), shares[row])
        return _cell(results, where, Variant(scaling), f"{level}_{metric}")  # type: ignore[arg-type]

    beside_text = " (paper …): its figure for the same cell." if results.design.config["as_paper"] else ""
    caption = (
        f"Test data, {LEVELS[level]}: {TITLES[metric]}, mean ± SEM over replicates. {BOLD} {BOUND_NOTE}{beside_text}"
    )
    rows = [(percent(share),) for share in shares]
    return rows_table(f"{level}_{metric}", caption, rows, ("Held out",), columns, cell)


def _all_scalings(results: TemperatureResults) -> list[Table]:
    """Every way with and without the prior, a table per holdout."""
    tables = []
    for order in results.design.orders:
        cells = [cell for cell in results.cells if cell.holdout.order == order]
        columns = {variant.name: title_of(variant) for variant in cells[0].by}
        variants = {variant.name: variant for variant in cells[0].by}

        def cell(row: int, key: str, cells: Any = cells, variants: Any = variants) -> Marked | None:
            found = _cell(results, cells[row], variants[key], "ensemble_nll")
            return None if found is None else Marked(found.estimate, None, found.mark, found.digits, found.scale)

        name = results.design.name(order)
        caption = (
            f"{name.capitalize()} holdout: the ensemble's test NLL with every scaling, plain and with a weak Gaussian "
            f"prior on log T (σ = 1). {BOLD} {BOUND_NOTE}"
        )
        rows = [(percent(c.holdout.fraction), str(c.points)) for c in cells]
        heads = ("Held out", "Points")
        tables.append(rows_table(f"all_scalings_{name.replace(' ', '_')}", caption, rows, heads, columns, cell))
    return tables


def _temperatures(results: TemperatureResults) -> Table:
    variants = [variant for variant in results.cells[0].by if variant.scaling != "none"]
    cells = results.cells

    def cell(row: int, key: str) -> Marked | None:
        scaled = next((s for variant, s in cells[row].by.items() if variant.name == key), None)
        if scaled is None:
            return None
        share = scaled.at_bound.mean()
        values = np.exp(np.log(scaled.temperatures).mean(1))  # a replicate's temperatures, averaged in log space
        return Marked(Estimate.of(values), None, f" † {share:.0%}" if share else "", 3)

    rows = [(results.design.name(c.holdout.order), percent(c.holdout.fraction), str(c.points)) for c in cells]
    caption = f"The temperatures found (above 1 softens). {BOUND_NOTE}"
    columns = {variant.name: title_of(variant) for variant in variants}
    heads = ("Holdout", "Held out", "Points")
    return rows_table("temperatures", caption, rows, heads, columns, cell, bold=lambda _: False)


def _gaps(results: TemperatureResults) -> Table:
    found = [(cell, gap) for cell in results.cells if (gap := cell.gap()) is not None]
    rows = [(results.design.name(c.holdout.order), percent(c.holdout.fraction), gap) for c, gap in found]
    caption = (
        "Optimality gap: the ensemble's test loss with individual temperatures minus with the joint one, paired by "
        "replicate (errors in percentage points). Positive: calibrating jointly paid off."
    )
    return gap_table(caption, rows)


def tidy(results: TemperatureResults) -> list[dict[str, Any]]:
    """Every figure, one a row."""
    rows = []
    for cell in results.cells:
        for variant, scaled in cell.by.items():
            for figure in scaled.figures:
                e = scaled.estimate(figure)
                rows.append(
                    {
                        "holdout": cell.holdout.order,
                        "val_fraction": cell.holdout.fraction,
                        "points": cell.points,
                        "scaling": variant.scaling,
                        "prior": int(variant.prior),
                        "figure": figure,
                        "mean": e.mean,
                        "sem": e.sem,
                        "replicates": len(cell.replicates),
                        "at_bound": float(scaled.at_bound.mean()),
                    }
                )
    return rows

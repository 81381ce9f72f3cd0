"""The tables of a temperature study."""

from typing import Any

import numpy as np

from ensgap import calibrate
from ensgap.gap import Estimate
from ensgap.report.design_tables import (
    LEVELS,
    TITLES,
    averaged,
    beside,
    bold_note,
    gap_table,
    marked,
    paper_note,
    percent,
    rows_table,
)
from ensgap.report.panels import LOOKS
from ensgap.report.tables import Column, Marked, Table
from ensgap.results.temperature import TemperatureCell, TemperatureResults, Variant

PAPERS = ("none", "individual", "joint")
BOUND_NOTE = (
    f"† n%: in that share of the fits the temperature sat on its bound (1/{calibrate.BOUND:g} or {calibrate.BOUND:g}), "
    "mostly for want of a finite optimum."
)


def main_tables(results: TemperatureResults) -> list[Table]:
    """The paper's tables, and the gaps."""
    levels = [_paper_table(results, level, metric) for level in LEVELS for metric in TITLES]
    return [*levels, *([_gaps(results)] if any(cell.gap() for cell in results.cells) else [])]


def more_tables(results: TemperatureResults) -> list[Table]:
    """Every scaling, and the temperatures found."""
    return [*(_all_scalings(results, order) for order in results.design.orders), _temperatures(results)]


def bound_mark(share: float) -> str:
    """The share of temperatures on their bound, if any."""
    return f" † {share:.0%}" if share else ""


def _cell(results: TemperatureResults, cell: TemperatureCell | None, variant: Variant, figure: str) -> Marked | None:
    if cell is None or variant not in cell.by:
        return None
    level, metric = figure.rsplit("_", 1)
    scaled, paper = cell.by[variant], None
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
    return marked(scaled.estimate(figure), metric, paper, bound_mark(scaled.at_bound.mean()))


def _paper_table(results: TemperatureResults, level: str, metric: str) -> Table:
    """As in the paper: a row per validation share; no scaling, individual and joint, each by holdout."""
    shares, orders = results.design.shares, results.design.orders
    columns = [
        Column(f"{scaling}/{order}", results.design.name(order), group=LOOKS[scaling].title)
        for scaling in PAPERS
        for order in orders
        if not (scaling == "joint" and order == 1)
    ]

    def cell(row: int, key: str) -> Marked | None:
        scaling, order = key.split("/")
        where = results.cell(int(order), shares[row])
        return _cell(results, where, Variant(scaling), f"{level}_{metric}")  # type: ignore[arg-type]

    config = results.design.config
    caption = (
        f"Test data, {LEVELS[level]}: {TITLES[metric]}, {averaged(config)}.{bold_note(config)} {BOUND_NOTE}"
        f"{paper_note(config)}"
    )
    rows = [(percent(share),) for share in shares]
    return rows_table(f"{level}_{metric}", caption, rows, ("Held out",), columns, cell)


def _all_scalings(results: TemperatureResults, order: int) -> Table:
    """Every way, with and without the prior, of one holdout: a row per share and figure."""
    cells = [cell for cell in results.cells if cell.holdout.order == order]
    variants = {variant.name: variant for variant in cells[0].by}
    figures = [(cell, level, metric) for cell in cells for level in LEVELS for metric in TITLES]

    def cell(row: int, key: str) -> Marked | None:
        where, level, metric = figures[row]
        scaled = where.by[variants[key]]
        return marked(scaled.estimate(f"{level}_{metric}"), metric, None, bound_mark(scaled.at_bound.mean()))

    name = results.design.name(order)
    caption = (
        f"{name.capitalize()} holdout: every scaling on test data, plain and with a weak Gaussian prior on log T "
        f"(σ = {calibrate.PRIOR:g}).{bold_note(results.design.config)} {BOUND_NOTE}"
    )
    rows = [(percent(c.holdout.fraction), str(c.points), f"{LEVELS[lv]}, {TITLES[m]}") for c, lv, m in figures]
    heads = ("Held out", "Points", "Figure")
    file = f"all_scalings_{name.replace(' ', '_')}"
    return rows_table(file, caption, rows, heads, _by_variant(list(variants.values())), cell)


def _temperatures(results: TemperatureResults) -> Table:
    variants = [variant for variant in results.cells[0].by if variant.scaling != "none"]
    cells = results.cells

    def cell(row: int, key: str) -> Marked | None:
        scaled = next((s for variant, s in cells[row].by.items() if variant.name == key), None)
        if scaled is None:
            return None
        values = np.exp(np.log(scaled.temperatures).mean(1))  # a replicate's temperatures, averaged in log space
        return Marked(Estimate.of(values), None, bound_mark(scaled.at_bound.mean()), 3)

    rows = [(results.design.name(c.holdout.order), percent(c.holdout.fraction), str(c.points)) for c in cells]
    caption = f"The temperatures found (above 1 softens). {BOUND_NOTE}"
    heads = ("Holdout", "Held out", "Points")
    return rows_table("temperatures", caption, rows, heads, _by_variant(variants), cell, best=lambda _: "none")


def _by_variant(variants: list[Variant]) -> list[Column]:
    kinds = {False: "plain", True: "with the prior"}
    return [
        Column(v.name, LOOKS[v.scaling].title, group="" if v.scaling == "none" else kinds[v.prior]) for v in variants
    ]


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

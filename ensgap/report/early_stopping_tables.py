"""The tables of an early-stopping study."""

from ensgap.report.design_tables import (
    LEVELS,
    TITLES,
    Best,
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
from ensgap.report.temperature_tables import BOUND_NOTE, bound_mark
from ensgap.results.early_stopping import StoppingResults
from ensgap.stopping import RULES

EXTRA = {"epochs": "Epochs (step-normalised)", "diversity": "Diversity (nats)", "ensemble_entropy": "Entropy (nats)"}
SCALINGS = {"none": "no scaling", "joint": "temperature", "joint_prior": "with prior"}


def main_tables(results: StoppingResults) -> list[Table]:
    """The ensemble's figures, and what a temperature adds to them."""
    then = [_then_temperature(results)] if any(cell.scaled for cell in results.cells) else []
    return [*(_rules(results, "ensemble", metric) for metric in TITLES), *then]


def more_tables(results: StoppingResults) -> list[Table]:
    """The average member's figures, how long it took, and the gaps."""
    gaps = [_gaps(results)] if any(cell.gap() for cell in results.cells) else []
    members = [_rules(results, "avg_member", metric) for metric in TITLES]
    return [*members, *(_extra(results, name) for name in EXTRA), *gaps]


def _rules(results: StoppingResults, level: str, metric: str) -> Table:
    config = results.design.config
    kept = f"{TITLES[metric]} of what each rule kept, {averaged(config)}."
    caption = f"Test data, {LEVELS[level]}: {kept}{bold_note(config)}"
    return _by_rule(results, f"{level}_{metric}", f"{level}_{metric}", metric, caption)


def _extra(results: StoppingResults, figure: str) -> Table:
    metric = figure.removeprefix("ensemble_")
    caption = {
        "epochs": "How long each rule trained until what it kept (without the patience that follows): optimizer steps "
        "over the steps of an epoch of the whole pool, averaged over members; "
        f"{averaged(results.design.config)}.",
        "diversity": "Diversity of what each rule kept on test data: entropy of the average − average entropy.",
        "entropy": "Entropy of the ensemble's prediction on test data, of what each rule kept.",
    }[metric]
    return _by_rule(results, metric, figure, metric, caption, best="none")


def _by_rule(
    results: StoppingResults, name: str, figure: str, metric: str, caption: str, best: Best = "lowest"
) -> Table:
    """A row per validation share, the rules by holdout."""
    design, shares = results.design, results.design.shares
    columns = [
        Column(f"{rule}/{order}", design.name(order), group=LOOKS[rule].title)
        for rule in RULES
        for order in design.orders
        if not (rule == "joint" and order == 1)
    ]

    def cell(row: int, key: str) -> Marked | None:
        rule, order = key.split("/")
        where = results.cell(int(order), shares[row])
        return None if where is None else marked(where.by[rule].estimate(figure), metric)  # type: ignore[index]

    rows = [(percent(share),) for share in shares]
    return rows_table(name, caption, rows, ("Held out",), columns, cell, best=lambda _: best)


def _then_temperature(results: StoppingResults) -> Table:
    """As in the paper for joint stopping: a row per metric, without and with scaling; beside it individual stopping,
    and the temperature with a prior.
    """
    design = results.design
    figures = [(cell, metric) for cell in results.cells if cell.scaled for metric in TITLES]
    columns = [
        Column(f"{rule}/{scaling}", title, group=f"{LOOKS[rule].title} stopping")
        for rule in ("individual", "joint")
        for scaling, title in SCALINGS.items()
    ]

    def cell(row: int, key: str) -> Marked:
        (where, metric), (rule, scaling) = figures[row], key.split("/")
        of = where.by[rule] if scaling == "none" else where.scaled[rule, scaling == "joint_prior"]  # type: ignore[index]
        paper = beside(
            design.config,
            "stopping_then_temperature",
            level="ensemble",
            setting=f"{rule}_stopping,scaling={scaling}",
            holdout=design.name(where.holdout.order),
            fraction=where.holdout.fraction,
            metric=metric,
        )
        return marked(of.estimate(f"ensemble_{metric}"), metric, paper, bound_mark(of.at_bound))

    caption = (
        "Stopping, then temperature: the ensemble that a rule kept on test data, as it is and with a joint temperature "
        f"fitted on the same holdout, plain and with a weak prior.{bold_note(design.config)} {BOUND_NOTE}"
        f"{paper_note(design.config)}"
    )
    rows = [(design.name(c.holdout.order), percent(c.holdout.fraction), TITLES[metric]) for c, metric in figures]
    return rows_table("then_temperature", caption, rows, ("Holdout", "Held out", "Metric"), columns, cell)


def _gaps(results: StoppingResults) -> Table:
    found = [(cell, gap) for cell in results.cells if (gap := cell.gap()) is not None]
    rows = [(results.design.name(c.holdout.order), percent(c.holdout.fraction), gap) for c, gap in found]
    caption = (
        "Optimality gap: the ensemble's test loss with individual stopping minus with joint stopping, paired by "
        "replicate (errors in percentage points). Positive: stopping jointly paid off."
    )
    return gap_table(caption, rows)

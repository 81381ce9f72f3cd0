"""What holdouts of order k do: for choosing the weight decay, for early stopping, and for temperatures."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ensgap.findings.kwise import CUTS, Emulated, Real, emulate, real_orders
from ensgap.findings.order_designs import OrderCell, read_orders
from ensgap.findings.order_figure import CAPTION, draw
from ensgap.findings.searches import Search, find_searches, missing
from ensgap.findings.section import Section
from ensgap.findings.tables import interval_cells, interval_columns, write_table
from ensgap.gap import Estimate
from ensgap.report.style import number, save
from ensgap.report.tables import Cell, Column, Table
from ensgap.report.words import interval_of, signed

SHOWN = (1, 2, 3, 4, 6, 8, 12, 16)
TITLE = "What do holdouts of order k do?"
DESIGNS = {"early_stopping": "joint early stopping", "temperature": "a joint temperature"}


def section(published: Path, figures: Path) -> Section | None:
    """All that the published studies say about orders."""
    searches = list(find_searches(published))
    emulated = {
        search: emulate(search.log_likelihoods(), search.weight_decays)
        for search in searches
        if search.order == search.members > 2
    }
    families = real_orders(searches)
    designs = {study: read_orders(published, study) for study in DESIGNS}
    if not (emulated or families or any(designs.values())):
        return None
    parts = []
    if emulated:
        parts += [*(emulated_sentence(s, found) for s, found in emulated.items())]
        parts += missing((s.task for s in emulated), "a weight-decay search with a shared holdout")
        parts += [write_table(emulated_table(emulated), figures, "Table: the choice by a k-wise NLL")]
    if families:
        parts += [*(real_sentence(family) for family in families)]
        parts += [write_table(real_table(families), figures, "Table: searches with holdouts of order k")]
    for study, cells in designs.items():
        if cells:
            parts += [design_sentence(study, cells)]
            parts += [write_table(design_table(study, cells), figures, f"Table: {DESIGNS[study]} by order")]
        parts += missing((cell.task for cell in cells), f"a study of {DESIGNS[study]} with several orders")
    names = {f"{s.task}, M = {s.members}": found for s, found in emulated.items()}
    save(draw(names, designs), figures, "orders", ("png",))
    beside, text = beside_shared(designs), "\n\n".join(parts)
    said = "; ".join(filter(None, (*choices(emulated, families), beside)))
    brief = beside or said
    return Section(TITLE, f"{said[0].upper()}{said[1:]}.", brief, text, figures / "orders.png", CAPTION)


def choices(emulated: Mapping[Search, Sequence[Emulated]], families: Sequence[Sequence[Real]]) -> list[str]:
    """What orders do to the choice of a weight decay, in a few words."""
    said = []
    if emulated:
        costs = [{e.order: e.regret.mean for e in found} for found in emulated.values()]
        cheaper = sum(cost[2] < cost[1] for cost in costs)
        said.append(
            f"choosing a weight decay by pairs of members costs the ensemble less than by single ones in {cheaper} of "
            f"{len(costs)} searches"
        )
    for family in families:
        best, worst = (pick(family, key=lambda real: real.regret.mean) for pick in (min, max))
        said.append(
            f"of real searches with M = {worst.members} that of order {_order(best)} chose best and that of order "
            f"{_order(worst)} worst"
        )
    return said


def beside_shared(designs: Mapping[str, Sequence[OrderCell]]) -> str:
    """How often other orders were better or worse than a shared holdout on test data."""
    said = []
    for study, cells in designs.items():
        if compared := _compared(cells):
            verdicts = [cell.difference["nll"].verdict for cell in compared]
            lower, higher = verdicts.count("negative"), verdicts.count("positive")
            said.append(f"in {lower} of {len(compared)} cells with {DESIGNS[study]} (a higher one in {higher})")
    start = "holdouts of order 2 … M−1 give a surely lower test NLL than shared ones"
    return f"{start} {' and '.join(said)}" if said else ""


def _compared(cells: Sequence[OrderCell]) -> list[OrderCell]:
    """Those of orders 2 … M−1 that have a shared holdout beside them."""
    return [cell for cell in cells if cell.difference and cell.order > 1]


def emulated_sentence(search: Search, found: Sequence[Emulated]) -> str:
    """What the emulated orders of a search say, in words."""
    pair = next(e for e in found if e.order == 2)
    alone = next(e for e in found if e.order == 1)

    def percent(estimate: Estimate) -> str:
        return f"{100 * estimate.mean:.0f} ± {100 * estimate.sem:.0f}%"

    sure = next((e.order for e in found if e.same.mean >= 0.9), search.members)
    return (
        f"**Weight decay, {search.task}, M = {search.members}** (`{search.name}`, {len(search.replicates)} replicates, "
        f"{len(search.weight_decays)} settings). From one replicate the 2-wise NLL chooses what the full ensemble "
        f"would have chosen in {percent(pair.same)} of cuts, one member per point in {percent(alone.same)}; with every "
        f"pair of neighbours judging every point it is {percent(pair.same_groups)}, and the average member "
        f"{percent(alone.same_groups)}. A 2-wise choice costs the full ensemble {pair.regret.mean:.5f} ± "
        f"{pair.regret.sem:.5f} validation NLL, one member's {alone.regret.mean:.5f} ± {alone.regret.sem:.5f}. "
        f"90% agreement takes order {sure} of {search.members}."
    )


def emulated_table(emulated: Mapping[Search, Sequence[Emulated]]) -> Table:
    """A row per search and order."""
    rows: list[tuple[Cell, ...]] = []
    for search, found in emulated.items():
        for e in found:
            if e.order in SHOWN or e.order >= search.members - 1:
                estimates = (e.same, e.regret, e.same_groups, e.regret_groups)
                rows.append(
                    (search.task, str(search.members), str(e.order), *estimates, e.same_all, number(e.weight_decay))
                )
    columns = (
        Column("task", "Task"),
        Column("members", "M"),
        Column("order", "Order k"),
        Column("same", "Same setting, one replicate (%)", 0, 100.0),
        Column("regret", "Loss of the ensemble (NLL)", 5),
        Column("same_groups", "Same, all groups of k (%)", 0, 100.0),
        Column("regret_groups", "Loss (NLL)", 5),
        Column("same_all", "Same, resamples of all replicates (%)", 0, 100.0),
        Column("weight_decay", "Chosen by all"),
    )
    caption = (
        "The weight decay chosen by a k-wise NLL against the one that the full ensemble chooses on the same points, "
        f"from searches with a shared holdout: its points are cut into M chunks ({CUTS} random cuts) and chunk c is "
        "judged by members c … c+k−1. Mean ± SEM over replicates. Without a cut all groups of k neighbours judge all "
        "points: k = 1 is then the average member. The loss is in the full ensemble's validation NLL. A real holdout "
        "of order k < M judges M/k times as many points at the same share held out."
    )
    return Table("orders_weight_decay", caption, columns, tuple(rows))


def real_sentence(family: Sequence[Real]) -> str:
    """What the choice of each order costs the full ensemble."""
    by_loss: dict[str, list[Real]] = {}
    for real in sorted(family, key=lambda real: real.regret.mean):
        by_loss.setdefault(number(real.h_ens), []).append(real)
    said = []
    for chosen, own in by_loss.items():
        loss = own[0].regret
        lost = "nothing" if loss.verdict == "zero" else f"{loss.mean:.5f} ({loss.low:.5f} to {loss.high:.5f})"
        said.append(f"{lost} at {chosen}, chosen with order {', '.join(_order(real) for real in own)}")
    return (
        f"**Real cyclic holdouts, M = {family[0].members}**, each choosing from the same {family[0].replicates} "
        "replicates. What the choice costs the full ensemble in validation NLL, against the best setting of all "
        f"replicates of the shared holdout (95% interval): {'; '.join(said)}."
    )


def _order(real: Real) -> str:
    return f"{real.order} (shared)" if real.order == real.members else str(real.order)


def real_table(families: Sequence[Sequence[Real]]) -> Table:
    """A row per search."""
    rows: list[tuple[Cell, ...]] = [
        (
            str(real.members),
            str(real.order),
            str(real.points),
            number(real.h_ind),
            number(real.h_ens),
            real.choice.share,
            *interval_cells(real.regret),
        )
        for family in families
        for real in family
    ]
    columns = (
        Column("members", "M"),
        Column("order", "Order k"),
        Column("points", "Points judged"),
        Column("h_ind", "h*_ind"),
        Column("h_ens", "h*_ens"),
        Column("share", "Resamples that choose it (%)", 0, 100.0),
        *interval_columns("regret", "Loss of the ensemble (NLL)", 5),
    )
    caption = (
        "Searches that differ in the order of their holdouts only. The loss is the validation NLL of the full ensemble "
        "at that h*_ens minus at the best setting, from all replicates of the search with a shared holdout, paired."
    )
    return Table("orders_real", caption, columns, tuple(rows))


def design_sentence(study: str, cells: Sequence[OrderCell]) -> str:
    """How often another order was better or worse than a shared holdout."""
    compared = _compared(cells)
    if not compared:
        return f"**{DESIGNS[study].capitalize()}**: no cell has a shared holdout to compare with."
    verdicts = [cell.difference["nll"].verdict for cell in compared]
    best = min(compared, key=lambda cell: cell.difference["nll"].mean)
    e = best.difference["nll"]
    return (
        f"**{DESIGNS[study].capitalize()}**: against a shared holdout of the same share, orders 2 … M−1 gave a lower "
        f"ensemble NLL on test data in {verdicts.count('negative')} of {len(compared)} cells, a higher one in "
        f"{verdicts.count('positive')}, and could not be told apart in the others (95% intervals, paired by replicate, "
        f"not corrected for {len(compared)} comparisons). The lowest difference is that of {best.task}, order "
        f"{best.order}, {100 * best.share:g}% held out: {signed('nll', e.mean)} ({interval_of('nll', e)})."
    )


def design_table(study: str, cells: Sequence[OrderCell]) -> Table:
    """A row per task, share and order."""
    rows: list[tuple[Cell, ...]] = []
    for cell in cells:
        nll, error = (interval_cells(cell.difference.get(metric)) for metric in ("nll", "error"))
        start = (cell.task, str(cell.members), f"{100 * cell.share:g}%", str(cell.order), cell.method)
        rows.append((*start, str(cell.replicates), cell.figures["nll"], *nll, cell.figures["error"], *error))
    columns = (
        Column("task", "Task"),
        Column("members", "M"),
        Column("held_out", "Held out"),
        Column("order", "Order k"),
        Column("method", "Method"),
        Column("replicates", "Replicates"),
        Column("nll", "Test NLL"),
        *interval_columns("nll_difference", "− shared"),
        Column("error", "Test error (%)", 2, 100.0),
        *interval_columns("error_difference", "− shared", 2, 100.0),
    )
    caption = (
        "By the order of the holdout it was decided on; differences are paired, to a shared holdout of the same share "
        "(negative: better than shared). Order 1 has nothing joint, so what each member decides alone stands there."
    )
    return Table(f"orders_{study}", caption, columns, tuple(rows))

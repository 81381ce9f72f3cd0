"""The report of an early-stopping study."""

import math
from collections.abc import Mapping
from typing import Any

from ensgap.folder import StudyFolder
from ensgap.gap import Estimate
from ensgap.report.design_tables import (
    BOLD,
    LEVELS,
    PAPER_NOTE,
    TITLES,
    beside,
    gap_table,
    marked,
    percent,
    rows_table,
    scale_of,
    tidy_csv,
)
from ensgap.report.panels import LOOKS, Line, share_panels
from ensgap.report.report import (
    Card,
    NamedFigure,
    Report,
    count_verdicts,
    data_notes,
    facts,
    json_estimate,
    summary_head,
)
from ensgap.report.style import NAMES
from ensgap.report.tables import Marked, Table
from ensgap.results.early_stopping import Stopped, StoppingResults, read_stopping
from ensgap.stopping import RULES, Rule

SHOWN_SHARE = 0.1
EXTRA = {"epochs": "Epochs (step-normalised)", "diversity": "Diversity (nats)", "ensemble_entropy": "Entropy (nats)"}


def early_stopping_report(folder: StudyFolder) -> Report:
    """Everything about it, recomputed from the saved predictions."""
    results = read_stopping(folder)
    design = results.design
    names = ("task", "members", "replicates", "patience", "lr", "val_fractions", "holdouts", "seed")
    notes = [*data_notes(design.study), *design.notes]
    if any(cell.unstopped for cell in results.cells):
        notes.append(f"Some trials reached {design.config['epochs']} epochs before every rule had stopped.")
    return Report(
        title=f"Early stopping of a deep ensemble on {design.config['task']}",
        headline=_headline(results),
        notes=notes,
        cards=_cards(results),
        tables=[*(_rules(results, "ensemble", metric) for metric in TITLES), _then_temperature(results)],
        figures=_figures(results),
        facts=facts(design.study, names),
        command=str(design.study["command"]),
        summary=_summary(results),
        files={"figures.csv": tidy_csv(_tidy(results))},
        appendix=[
            *(_rules(results, "avg_member", metric) for metric in TITLES),
            *(_extra(results, name) for name in EXTRA),
            _gaps(results),
        ],
    )


def _verdicts(results: StoppingResults) -> list[str]:
    return [gap["nll"].verdict for cell in results.cells if (gap := cell.gap()) is not None]


def _headline(results: StoppingResults) -> str:
    config, verdicts = results.design.config, _verdicts(results)
    if not verdicts:
        return (
            f"On {config['task']}, only disjoint holdouts were asked for, under which there is no joint stopping: no "
            "point is held out by two members. The tables have individual stopping and the shared epoch."
        )
    longer = [c for c in results.cells if "joint" in c.by and _mean(c.by, "joint") > _mean(c.by, "individual")]
    return (
        f"On {config['task']}, with {config['members']} members: stopping when the ensemble is best gave a lower "
        f"ensemble NLL on test data than stopping each member for itself {count_verdicts(verdicts)}. It trained longer "
        f"in {len(longer)} of them."
    )


def _mean(by: Mapping[Rule, Stopped], rule: Rule) -> float:
    return by[rule].estimate("epochs").mean


def _cards(results: StoppingResults) -> list[Card]:
    found = [(cell, gap["nll"]) for cell in results.cells if (gap := cell.gap()) is not None]
    if not found:
        return []
    largest = [item for item in found if item[0].holdout.order == max(c.holdout.order for c, _ in found)]
    cell, e = min(largest, key=lambda item: abs(math.log(item[0].holdout.fraction / SHOWN_SHARE)))
    where = results.design.where(cell.holdout)
    interval = f"95% interval {e.low:+.4f} to {e.high:+.4f}; " if e.sem == e.sem else ""
    epochs = f"{_mean(cell.by, 'individual'):.1f} → {_mean(cell.by, 'joint'):.1f}"
    return [
        Card("gap, individual − joint, test NLL", f"{e.mean:+.4f}", interval + where, "ens"),
        Card("epochs, individual → joint", epochs, f"step-normalised; {where}"),
    ]


def _rules(results: StoppingResults, level: str, metric: str) -> Table:
    caption = f"Test data, {LEVELS[level]}: {TITLES[metric]} of what each rule kept, mean ± SEM over replicates. {BOLD}"
    return _by_rule(results, f"{level}_{metric}", f"{level}_{metric}", metric, caption)


def _extra(results: StoppingResults, figure: str) -> Table:
    metric = figure.removeprefix("ensemble_")
    caption = {
        "epochs": "How long each rule trained until what it kept: optimizer steps over the steps of an epoch of the "
        "whole pool, averaged over members; mean ± SEM over replicates.",
        "diversity": "Diversity of what each rule kept on test data: entropy of the average − average entropy.",
        "entropy": "Entropy of the ensemble's prediction on test data, of what each rule kept.",
    }[metric]
    return _by_rule(results, metric, figure, metric, caption, bold=False)


def _by_rule(results: StoppingResults, name: str, figure: str, metric: str, caption: str, bold: bool = True) -> Table:
    """A row per validation share, the rules by holdout."""
    design, shares = results.design, results.design.shares
    columns = {
        f"{rule}/{order}": f"{LOOKS[rule].title}, {design.name(order)}"
        for rule in RULES
        for order in design.orders
        if not (rule == "joint" and order == 1)
    }

    def cell(row: int, key: str) -> Marked | None:
        rule, order = key.split("/")
        where = results.cell(int(order), shares[row])
        return None if where is None else marked(where.by[rule].estimate(figure), metric)  # type: ignore[index]

    rows = [(percent(share),) for share in shares]
    return rows_table(name, caption, rows, ("Held out",), columns, cell, bold=lambda _: bold)


def _then_temperature(results: StoppingResults) -> Table:
    design = results.design
    cells = [cell for cell in results.cells if cell.scaled is not None]
    rows = [
        (design.name(c.holdout.order), percent(c.holdout.fraction), TITLES[metric], metric)
        for c in cells
        for metric in ("error", "nll", "ece")
    ]

    def cell(row: int, key: str) -> Marked | None:
        where, metric = cells[row // 3], rows[row][3]
        stopped = where.by["joint"] if key == "none" else where.scaled
        assert stopped is not None
        paper = beside(
            design.config,
            "stopping_then_temperature",
            level="ensemble",
            setting=f"joint_stopping,scaling={key}",
            holdout=design.name(where.holdout.order),
            fraction=where.holdout.fraction,
            metric=metric,
        )
        return marked(stopped.estimate(f"ensemble_{metric}"), metric, paper)

    note = f" {PAPER_NOTE}" if design.config["as_paper"] else ""
    caption = (
        "Then temperature: the ensemble kept by joint stopping on test data, as it is and with a joint temperature "
        f"fitted on the same holdout. {BOLD}{note}"
    )
    columns = {"none": "joint stopping", "joint": "then joint temperature"}
    return rows_table(
        "then_temperature", caption, [row[:3] for row in rows], ("Holdout", "Held out", "Metric"), columns, cell
    )


def _gaps(results: StoppingResults) -> Table:
    found = [(cell, gap) for cell in results.cells if (gap := cell.gap()) is not None]
    rows = [(results.design.name(c.holdout.order), percent(c.holdout.fraction), gap) for c, gap in found]
    caption = (
        "Optimality gap: the ensemble's test loss with individual stopping minus with joint stopping, paired by "
        "replicate (errors in percentage points). Positive: stopping jointly paid off."
    )
    return gap_table(caption, rows)


def _figures(results: StoppingResults) -> list[NamedFigure]:
    captions = {
        "ensemble": "The ensemble on test data, of what each rule kept, ± SEM, against the validation share.",
        "extra": "How long each rule trained, and the ensemble's diversity and entropy on test data, ± SEM.",
        "avg_member": "The average member on test data, of what each rule kept, ± SEM.",
    }
    shown = {level: {f"{level}_{m}": f"Test {NAMES[m]}" for m in TITLES} for level in LEVELS} | {"extra": EXTRA}
    return [_panels(results, name, shown[name], caption) for name, caption in captions.items()]


def _panels(results: StoppingResults, name: str, figures: Mapping[str, str], caption: str) -> NamedFigure:
    design = results.design
    lines: dict[tuple[str, str], list[Line]] = {}
    for order in design.orders:
        cells = [cell for cell in results.cells if cell.holdout.order == order]
        for rule in cells[0].by:
            for figure in figures:
                estimates = [cell.by[rule].estimate(figure) for cell in cells]
                shares = [cell.holdout.fraction for cell in cells]
                line = Line(LOOKS[rule], shares, estimates, scale_of(figure.rsplit("_", 1)[-1]))
                lines.setdefault((figure, design.name(order)), []).append(line)
    return NamedFigure(name, caption, share_panels(figures, [design.name(order) for order in design.orders], lines))


def _estimates(results: StoppingResults) -> list[tuple[Any, str, dict[str, Estimate]]]:
    found = []
    for cell in results.cells:
        kept = dict(cell.by.items()) | ({} if cell.scaled is None else {"joint_then_temperature": cell.scaled})
        for rule, stopped in kept.items():
            found.append((cell, str(rule), {name: stopped.estimate(name) for name in stopped.figures}))
    return found


def _tidy(results: StoppingResults) -> list[dict[str, Any]]:
    rows = []
    for cell, rule, estimates in _estimates(results):
        where = {"holdout": cell.holdout.order, "val_fraction": cell.holdout.fraction, "rule": rule}
        for figure, e in estimates.items():
            numbers = {"mean": e.mean, "sem": e.sem, "replicates": len(cell.replicates)}
            rows.append(where | {"figure": figure} | numbers)
    return rows


def _summary(results: StoppingResults) -> Mapping[str, Any]:
    cells = []
    for cell in results.cells:
        gap = cell.gap()
        test = {rule: found for own, rule, found in _estimates(results) if own is cell}
        cells.append(
            {
                "holdout": results.design.name(cell.holdout.order),
                "order": cell.holdout.order,
                "val_fraction": cell.holdout.fraction,
                "replicates": list(cell.replicates),
                "test": {r: {name: json_estimate(e, False) for name, e in found.items()} for r, found in test.items()},
                "gap": None if gap is None else {m: json_estimate(e, True) for m, e in gap.items()},
            }
        )
    head = summary_head(results.design.study, _headline(results))
    return head | {"cells": cells, "training_seconds": results.design.seconds}

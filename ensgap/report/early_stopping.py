"""The report of an early-stopping study."""

import math
from collections.abc import Mapping
from typing import Any

from ensgap.folder import StudyFolder
from ensgap.gap import Estimate
from ensgap.report.design_tables import LEVELS, TITLES, scale_of, tidy_csv
from ensgap.report.early_stopping_tables import EXTRA, main_tables, more_tables
from ensgap.report.panels import LOOKS, Line, share_panels
from ensgap.report.paper_cells import HEADS, cells_beside, paper_cards, paper_summary, paper_tables
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
from ensgap.report.words import axis_label, bars
from ensgap.results.early_stopping import Stopped, StoppingResults, read_stopping
from ensgap.stopping import Rule

SHOWN_SHARE = 0.1


def early_stopping_report(folder: StudyFolder) -> Report:
    """Everything about it, recomputed from the saved predictions."""
    results = read_stopping(folder)
    design = results.design
    names = ("task", "members", "replicates", "patience", "lr", "val_fractions", "holdouts", "seed")
    tables = main_tables(results)
    beside = cells_beside(tables)
    return Report(
        title=f"Early stopping of a deep ensemble on {design.config['task']}",
        headline=_headline(results),
        notes=[*data_notes(design.study), *design.notes],
        cards=[*_cards(results), *paper_cards(beside)],
        tables=tables,
        figures=_figures(results),
        facts=facts(design.study, names),
        command=str(design.study["command"]),
        summary=dict(_summary(results)) | paper_summary(beside),
        files={"figures.csv": tidy_csv(_tidy(results))},
        appendix=[*more_tables(results), *paper_tables(beside, HEADS)],
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
        f"in {len(longer)} of the {len(verdicts)}."
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


def _figures(results: StoppingResults) -> list[NamedFigure]:
    said = bars(min(len(cell.replicates) for cell in results.cells), "Methods stand side by side; bars")
    captions = {
        "ensemble": f"The ensemble on test data, of what each rule kept. {said}",
        "extra": f"How long each rule trained, and the ensemble's diversity and entropy on test data. {said}",
        "avg_member": f"The average member on test data, of what each rule kept. {said}",
    }
    shown = {level: {f"{level}_{m}": axis_label(m, "Test") for m in TITLES} for level in LEVELS} | {"extra": EXTRA}
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
        scaled = {f"{rule}_then_temperature{'_prior' * prior}": kept for (rule, prior), kept in cell.scaled.items()}
        for rule, stopped in (*cell.by.items(), *scaled.items()):
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

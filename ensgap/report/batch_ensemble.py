"""The report of a BatchEnsemble study."""

from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from ensgap.folder import StudyFolder
from ensgap.gap import Estimate
from ensgap.report.design_tables import (
    Best,
    averaged,
    beside,
    marked,
    paper_note,
    percent,
    rows_table,
    scale_of,
    tidy_csv,
)
from ensgap.report.paper_cells import HEADS, cells_beside, paper_cards, paper_summary, paper_tables
from ensgap.report.report import Card, NamedFigure, Report, data_notes, facts, json_estimate, summary_head
from ensgap.report.style import COLORS, STYLE, legend_above
from ensgap.report.tables import Column, Marked, Table
from ensgap.report.words import axis_label, bars
from ensgap.results.batch_ensemble import (
    CLEAR,
    TRUST,
    WHERE,
    BatchEnsembleCell,
    BatchEnsembleResults,
    Where,
    read_batch_ensemble,
)

INITS = {"none": "deep ensemble", "gaussian_0.1": "N(1, 0.1²)", "gaussian_0.5": "N(1, 0.5²)", "sign": "random sign"}
PAPER_INITS = {"none": "deep_ensemble", "sign": "random_sign"}
ROWS = {
    "ensemble_error": "Error (%)",
    "ensemble_nll": "NLL",
    "ensemble_ece": "ECE",
    "diversity": "Diversity",
    "ensemble_entropy": "Entropy",
    "epochs": "Epochs (step-normalised)",
}
LOOKS: dict[Where, tuple[str, str, str]] = {
    "train": ("its training points", COLORS["training points"], "s"),
    "holdout": ("its own holdout", COLORS["own holdout"], "D"),
    "test": ("test data", COLORS["test data"], "o"),
}


def batch_ensemble_report(folder: StudyFolder) -> Report:
    """Everything about it, recomputed from the saved predictions."""
    results = read_batch_ensemble(folder)
    design = results.design
    names = ("task", "members", "replicates", "patience", "lr", "val_fractions", "holdouts", "inits", "seed")
    tables = [_test(results, share) for share in design.shares]
    beside = cells_beside(tables)
    return Report(
        title=f"BatchEnsemble on {design.config['task']}",
        headline=_headline(results),
        notes=[*data_notes(design.study), *design.notes],
        cards=[*_cards(results), *paper_cards(beside)],
        tables=[*tables, _leaks(results), _parameters(results), *paper_tables(beside, HEADS)],
        figures=[_leak_figure(results, share) for share in design.shares],
        facts=facts(design.study, names),
        command=str(design.study["command"]),
        summary=dict(_summary(results)) | paper_summary(beside),
        files={"figures.csv": tidy_csv(_tidy(results))},
    )


def _batch_ensembles(results: BatchEnsembleResults) -> list[BatchEnsembleCell]:
    return [cell for cell in results.cells if cell.init != "none"]


def _inits(results: BatchEnsembleResults) -> list[str]:
    return list(dict.fromkeys(cell.init for cell in _batch_ensembles(results)))


def _own(results: BatchEnsembleResults, init: str) -> list[tuple[Estimate, BatchEnsembleCell]]:
    """The leaks of an initialisation with holdouts that its members do not share, the largest first."""
    cells = [cell for cell in results.cells if cell.init == init and not cell.shared]
    leaks = [(leak, cell) for cell in cells if (leak := cell.leak()) is not None]
    return sorted(leaks, key=lambda item: -item[0].mean)


def _headline(results: BatchEnsembleResults) -> str:
    words: dict[str, list[str]] = {"leaks": [], "trust it": [], "unclear": []}
    for init in _inits(results):
        found = _own(results, init)
        verdicts = [cell.verdict() for _, cell in found]
        if found:
            word = "leaks" if "leaks" in verdicts else "unclear" if "unclear" in verdicts else "trust it"
            worst = f" (up to {found[0][0].mean:.0%})" if word == "leaks" else ""
            words[word].append(INITS[init] + worst)
    verbs = {"leaks": "leak with", "trust it": "can be trusted with", "unclear": "give no clear verdict with"}
    said = [f"{verbs[word]} {' and '.join(inits)}" for word, inits in words.items() if inits]
    leak = f"holdouts that members do not share {', and '.join(said)}. " if said else ""
    most = [cell for cell in results.cells if cell.holdout.order == results.design.orders[0]]
    same = [cell for cell in most if cell.holdout == most[0].holdout]
    nll = ", ".join(f"{INITS[c.init]} {c.stopped.estimate('ensemble_nll').mean:.4f}" for c in same)
    text = f"{leak}With {results.design.where(same[0].holdout)} the ensemble's NLL on test data is: {nll}."
    return f"On {results.design.config['task']}, {text[0].lower()}{text[1:]}"


def _cards(results: BatchEnsembleResults) -> list[Card]:
    cards = []
    for init in _inits(results):
        for leak, cell in _own(results, init)[:1]:
            below = f"{results.design.where(cell.holdout)}: {cell.verdict()}"
            cards.append(Card(f"leak, {INITS[init]}", f"{leak.mean:.0%}", below))
    return cards


def _test(results: BatchEnsembleResults, share: float) -> Table:
    """As in the paper: a row per metric, the deep ensemble and then the holdouts of each initialisation."""
    design = results.design
    cells = {f"{c.init}/{c.holdout.order}": c for c in results.cells if c.holdout.fraction == share}
    columns = [Column(key, design.name(c.holdout.order), group=INITS[c.init]) for key, c in cells.items()]
    figures = list(ROWS)

    def cell(row: int, key: str) -> Marked:
        where, metric = cells[key], figures[row].removeprefix("ensemble_")
        paper = beside(
            design.config,
            "batch_ensemble",
            level="ensemble",
            setting=f"init={PAPER_INITS.get(where.init, where.init)}",
            holdout=design.name(where.holdout.order),
            fraction=share,
            metric=metric,
        )
        return marked(where.stopped.estimate(figures[row]), metric, paper)

    bold = " Bold: within 1.96 SEM of the best BatchEnsemble." if design.config["replicates"] > 1 else ""
    caption = (
        f"Test data, {percent(share)} held out: what joint stopping kept, {averaged(design.config)} (the disjoint "
        f"holdout has no joint NLL, and stops by the mean of the members' own).{bold}{paper_note(design.config)}"
    )
    name = "test" if len(design.shares) == 1 else f"test_{100 * share:g}"
    deep = [key for key, c in cells.items() if c.init == "none"]
    rows = [(title,) for title in ROWS.values()]
    best: list[Best] = ["lowest", "lowest", "lowest", "highest", "none", "none"]  # in the order of ROWS
    return rows_table(name, caption, rows, ("Metric",), columns, cell, best.__getitem__, apart=deep)


def _leaks(results: BatchEnsembleResults) -> Table:
    rows: list[tuple[Any, ...]] = []
    for cell in _batch_ensembles(results):
        leak = cell.leak()
        assert leak is not None
        nll = [marked(Estimate.of(cell.members[where]["nll"]), "nll") for where in WHERE]
        interval = f"{leak.low:.0%} to {leak.high:.0%}" if leak.sem == leak.sem else "–"
        where = (INITS[cell.init], results.design.name(cell.holdout.order), percent(cell.holdout.fraction))
        rows.append((*where, *nll, f"{leak.mean:.0%}", interval, cell.verdict()))
    keys = ("init", "holdout", "val", "train_nll", "holdout_nll", "test_nll", "leak", "ci95", "verdict")
    titles = ("Fast weights", "Holdout", "Held out", "NLL, train", "own holdout", "test", "Leak", "95%", "Verdict")
    caption = (
        "Leaks: how far a member's own holdout follows its training points instead of test data, (test − holdout) / "
        "(test − train) of the average member's NLL; 0%: as new as test data, 100%: as if trained on. A holdout leaks "
        f"if the 95% interval lies above {TRUST:.0%}; otherwise trust it if the interval ends below {CLEAR:.0%}. A "
        "shared holdout cannot leak."
    )
    return Table("leaks", caption, tuple(Column(k, t) for k, t in zip(keys, titles, strict=True)), tuple(rows))


def _parameters(results: BatchEnsembleResults) -> Table:
    counts = {cell.init: cell.parameters for cell in results.cells}
    rows = tuple((INITS[init], f"{count:,}") for init, count in counts.items())
    columns = (Column("init", "Ensemble"), Column("parameters", "Parameters"))
    return Table("parameters", f"Parameters of {results.design.config['members']} members together.", columns, rows)


def _leak_figure(results: BatchEnsembleResults, share: float) -> NamedFigure:
    inits, orders = _inits(results), results.design.orders
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(1.2 + 2.4 * len(inits), 6.4), layout="constrained")
        grid = figure.subplots(3, len(inits), sharex=True, sharey="row", squeeze=False)
        for row, metric in enumerate(("error", "nll", "ece")):
            for column, init in enumerate(inits):
                axes = grid[row][column]
                for where in WHERE:
                    _points(axes, [results.cell(init, order, share) for order in orders], metric, where)
                if row == 0:
                    axes.set_title(INITS[init], fontsize=10)
                axes.set_xticks(range(len(orders)), [results.design.name(order) for order in orders], rotation=20)
                axes.set_xlim(-0.5, len(orders) - 0.5)
            grid[row][0].set_ylabel(axis_label(metric))
        handles, names = grid[0][0].get_legend_handles_labels()
        legend_above(figure, handles, names, 3)
    caption = (
        f"The leak: the average member on its training points, on its own holdout ({percent(share)}) and on test "
        "data, per initialisation and holdout. Where the holdout sits with training instead of test, it cannot "
        "be trusted. (The ECE of few points is too high, so compare a holdout's ECE between holdouts only.) "
        f"{bars(min(len(cell.replicates) for cell in _batch_ensembles(results)))}"
    )
    return NamedFigure("leak" if len(results.design.shares) == 1 else f"leak_{100 * share:g}", caption, figure)


def _points(axes: Any, cells: list[BatchEnsembleCell | None], metric: str, where: Where) -> None:
    title, color, marker = LOOKS[where]
    shift, scale = 0.16 * (WHERE.index(where) - 1), scale_of(metric)
    found = [(i, Estimate.of(c.members[where][metric])) for i, c in enumerate(cells) if c is not None]
    places = np.array([i for i, _ in found]) + shift
    means, sems = [scale * e.mean for _, e in found], scale * np.nan_to_num([e.sem for _, e in found])
    axes.errorbar(places, means, yerr=sems, fmt=marker, color=color, markersize=5.5, capsize=2, label=title)


def _tidy(results: BatchEnsembleResults) -> list[dict[str, Any]]:
    rows = []
    for cell in results.cells:
        where = {"init": cell.init, "holdout": cell.holdout.order, "val_fraction": cell.holdout.fraction}
        found = [("test", name, cell.stopped.estimate(name)) for name in cell.stopped.figures]
        for on, figures in cell.members.items():
            found += [(on, f"avg_member_{metric}", Estimate.of(values)) for metric, values in figures.items()]
        for place, name, e in found:
            numbers = {"mean": e.mean, "sem": e.sem, "replicates": len(cell.replicates)}
            rows.append(where | {"on": place, "figure": name} | numbers)
    return rows


def _summary(results: BatchEnsembleResults) -> Mapping[str, Any]:
    cells = []
    for cell in results.cells:
        leak = cell.leak()
        cells.append(
            {
                "init": cell.init,
                "holdout": results.design.name(cell.holdout.order),
                "order": cell.holdout.order,
                "val_fraction": cell.holdout.fraction,
                "replicates": list(cell.replicates),
                "parameters": cell.parameters,
                "test": {name: json_estimate(cell.stopped.estimate(name), False) for name in cell.stopped.figures},
                "leak": None if leak is None else json_estimate(leak, True),
                "verdict": cell.verdict(),
            }
        )
    head = summary_head(results.design.study, _headline(results))
    return head | {"cells": cells, "training_seconds": results.design.seconds}

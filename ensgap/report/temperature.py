"""The report of a temperature study."""

from collections.abc import Mapping
from typing import Any

from ensgap.folder import StudyFolder
from ensgap.report.design_tables import tidy_csv
from ensgap.report.paper_cells import HEADS, cells_beside, paper_cards, paper_summary, paper_tables
from ensgap.report.report import Card, Report, count_verdicts, data_notes, facts, json_estimate, summary_head
from ensgap.report.temperature_figures import draw_figures
from ensgap.report.temperature_tables import main_tables, more_tables, tidy
from ensgap.results.temperature import TemperatureCell, TemperatureResults, Variant, read_temperature


def temperature_report(folder: StudyFolder) -> Report:
    """Everything about it, recomputed from the saved predictions."""
    results = read_temperature(folder)
    config = results.design.config
    names = ("task", "members", "replicates", "weight_decay", "epochs", "lr", "val_fractions", "holdouts", "seed")
    tables = main_tables(results)
    beside = cells_beside(tables)
    return Report(
        title=f"Temperature scaling of a deep ensemble on {config['task']}",
        headline=_headline(results),
        notes=[*data_notes(results.design.study), *results.design.notes],
        cards=[*_cards(results), *paper_cards(beside)],
        tables=tables,
        figures=draw_figures(results),
        facts=facts(results.design.study, names),
        command=str(results.design.study["command"]),
        summary=dict(_summary(results)) | paper_summary(beside),
        files={"figures.csv": tidy_csv(tidy(results))},
        appendix=[*more_tables(results), *paper_tables(beside, HEADS)],
    )


def _headline(results: TemperatureResults) -> str:
    config = results.design.config
    verdicts = [gap["nll"].verdict for cell in results.cells if (gap := cell.gap()) is not None]
    if not verdicts:
        return (
            f"On {config['task']}, only disjoint holdouts were asked for, under which there is no joint temperature: "
            "no point is held out by two members. The tables have the individual temperatures."
        )
    cell = _smallest(results)
    none, plain, weighed = (_nll(cell, v) for v in (Variant("none"), Variant("joint"), Variant("joint", prior=True)))
    return (
        f"On {config['task']}, with {config['members']} members: one temperature for the ensemble gave a lower "
        f"ensemble NLL on test data than individual temperatures {count_verdicts(verdicts)}. With the fewest points to "
        f"fit it on ({cell.distinct_points}, {results.design.where(cell.holdout)}) the joint temperature gave "
        f"{plain:.4f}, and {weighed:.4f} with a weak prior; no scaling gave {none:.4f}."
    )


def _smallest(results: TemperatureResults) -> TemperatureCell:
    """The holdout with the fewest points to fit a joint temperature on, of those that have one."""
    return min((cell for cell in results.cells if cell.gap() is not None), key=lambda cell: cell.distinct_points)


def _nll(cell: TemperatureCell, variant: Variant) -> float:
    return cell.by[variant].estimate("ensemble_nll").mean


def _cards(results: TemperatureResults) -> list[Card]:
    cell = next(c for c in results.cells if c.holdout == results.sweep.holdout)
    gap = cell.gap()
    if gap is None:
        return []
    e, few = gap["nll"], _smallest(results)
    interval = f"95% interval {e.low:+.4f} to {e.high:+.4f}; " if e.sem == e.sem else ""
    where = results.design.where(cell.holdout)
    plain, weighed = (_nll(few, Variant("joint", prior)) for prior in (False, True))
    below = f"joint temperature, ensemble test NLL; {results.design.where(few.holdout)}, {few.distinct_points} points"
    return [
        Card("gap, individual − joint, test NLL", f"{e.mean:+.4f}", interval + where, "ens"),
        Card("plain → with the prior", f"{plain:.4f} → {weighed:.4f}", below),
    ]


def _summary(results: TemperatureResults) -> Mapping[str, Any]:
    cells = []
    for cell in results.cells:
        gap = cell.gap()
        cells.append(
            {
                "holdout": results.design.name(cell.holdout.order),
                "order": cell.holdout.order,
                "val_fraction": cell.holdout.fraction,
                "points": cell.points,
                "distinct_points": cell.distinct_points,
                "replicates": list(cell.replicates),
                "test": {
                    variant.name: {
                        name: json_estimate(scaled.estimate(name), interval=False) for name in scaled.figures
                    }
                    for variant, scaled in cell.by.items()
                },
                "at_bound": {variant.name: float(scaled.at_bound.mean()) for variant, scaled in cell.by.items()},
                "gap": None if gap is None else {m: json_estimate(e, True) for m, e in gap.items()},
            }
        )
    head = summary_head(results.design.study, _headline(results))
    return head | {"cells": cells, "training_seconds": results.design.seconds}

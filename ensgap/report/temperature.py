"""The report of a temperature study."""

from collections.abc import Mapping, Sequence
from typing import Any

from ensgap.folder import StudyFolder
from ensgap.gap import Estimate
from ensgap.report.design_tables import tidy_csv
from ensgap.report.report import Card, Report, count_verdicts, data_notes, facts, json_estimate, summary_head
from ensgap.report.temperature_figures import draw_figures
from ensgap.report.temperature_tables import main_tables, more_tables, tidy, title_of
from ensgap.results.temperature import TemperatureCell, TemperatureResults, Variant, read_temperature


def temperature_report(folder: StudyFolder) -> Report:
    """Everything about it, recomputed from the saved predictions."""
    results = read_temperature(folder)
    config = results.design.config
    cell, variant, estimate = _best(results.cells)
    where = f"{title_of(variant)}, {results.design.where(cell.holdout)}"
    names = ("task", "members", "replicates", "weight_decay", "epochs", "lr", "val_fractions", "holdouts", "seed")
    notes = [*data_notes(results.design.study), *results.design.notes]
    return Report(
        title=f"Temperature scaling of a deep ensemble on {config['task']}",
        headline=_headline(results),
        notes=notes,
        cards=[
            Card("lowest ensemble NLL on test data", f"{estimate.mean:.4f}", where),
            *_gap_cards(results),
        ],
        tables=main_tables(results),
        figures=draw_figures(results),
        facts=facts(results.design.study, names),
        command=str(results.design.study["command"]),
        summary=_summary(results),
        files={"figures.csv": tidy_csv(tidy(results))},
        appendix=more_tables(results),
    )


def _best(cells: Sequence[TemperatureCell]) -> tuple[TemperatureCell, Variant, Estimate]:
    found = [(cell, variant, scaled.estimate("ensemble_nll")) for cell in cells for variant, scaled in cell.by.items()]
    return min(found, key=lambda item: item[2].mean)


def _headline(results: TemperatureResults) -> str:
    config = results.design.config
    verdicts = [gap["nll"].verdict for cell in results.cells if (gap := cell.gap()) is not None]
    if not verdicts:
        return (
            f"On {config['task']}, only disjoint holdouts were asked for, under which there is no joint temperature: "
            "no point is held out by two members. The tables have the individual temperatures."
        )
    cell, variant, estimate = _best(results.cells)
    return (
        f"On {config['task']}, with {config['members']} members: one temperature for the ensemble gave a lower "
        f"ensemble NLL on test data than individual temperatures {count_verdicts(verdicts)}. The lowest ensemble NLL, "
        f"{estimate.mean:.4f}, had {title_of(variant)} with {results.design.where(cell.holdout)}."
    )


def _gap_cards(results: TemperatureResults) -> list[Card]:
    cell = next((c for c in results.cells if c.holdout == results.sweep.holdout), None)
    gap = cell.gap() if cell is not None else None
    if cell is None or gap is None:
        return []
    e = gap["nll"]
    interval = f"95% interval {e.low:+.4f} to {e.high:+.4f}; " if e.sem == e.sem else ""
    return [
        Card(
            "gap, individual − joint, test NLL", f"{e.mean:+.4f}", interval + results.design.where(cell.holdout), "ens"
        )
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

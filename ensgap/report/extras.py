"""What every study that looks for both optima reports beside its own tables: greedy selection, and advice."""

from dataclasses import dataclass
from typing import Any

from ensgap.folder import StudyFolder
from ensgap.report.advice import advise
from ensgap.report.greedy import greedy_figure, greedy_summary, greedy_tables
from ensgap.report.report import NamedFigure
from ensgap.report.tables import Table
from ensgap.report.weight_decay_tables import metric_columns
from ensgap.results.greedy import read_greedy
from ensgap.results.optima import StudyResults


@dataclass(frozen=True)
class Extras:
    """Parts of a report."""

    tables: tuple[Table, ...]
    figures: tuple[NamedFigure, ...]
    advice: tuple[str, ...]
    summary: dict[str, Any]


def read_extras(folder: StudyFolder, results: StudyResults) -> Extras:
    """From the saved predictions of the search."""
    greedy = read_greedy(folder, results)
    advice = advise(results, greedy)
    return Extras(
        tables=tuple(greedy_tables(greedy, metric_columns(results))) if greedy else (),
        figures=(greedy_figure(greedy),) if greedy else (),
        advice=advice.sentences,
        summary={"advice": advice.numbers, "greedy": greedy_summary(greedy) if greedy else None},
    )

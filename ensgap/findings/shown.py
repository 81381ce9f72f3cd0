"""The published studies as the page shows them: what is the same for many of them is said once."""

from collections.abc import Sequence
from dataclasses import dataclass

from ensgap.findings.beside_paper import beside_paper
from ensgap.findings.claims import Results
from ensgap.findings.studies import PublishedStudy
from ensgap.report.style import number


@dataclass(frozen=True)
class Shown:
    """A study with its captions, which point to the study that has the same ones where another stands above."""

    study: PublishedStudy
    figure: str
    figure_caption: str
    table: str
    table_caption: str
    beside_paper: str


@dataclass(frozen=True)
class OrderRow:
    """One search with holdouts of another order than the shared one."""

    study: PublishedStudy
    h_ind: str
    h_ens: str


def shown_studies(studies: Sequence[PublishedStudy]) -> list[Shown]:
    """All but the searches with other orders, in this order."""
    first: dict[str, str] = {}

    def once(caption: str, kind: str, study: PublishedStudy) -> str:
        above = first.setdefault(caption, study.path.name)
        return caption if above == study.path.name else f"{kind} as of [{above}](#{above})."

    found = []
    for study in studies:
        if study.order_search:
            continue
        figure_caption, figure = study.figure
        table_caption, table = study.table
        if (beside := beside_paper(study)) and table_caption.startswith("Beside the paper: "):
            table_caption = table_caption[max(0, table_caption.find("Mean ± SEM")) :]  # the rest is said by `beside`
        captions = once(figure_caption, "Figure", study), once(table_caption, "Table", study)
        found.append(Shown(study, figure, captions[0], table, captions[1], beside))
    return found


def order_rows(results: Results) -> list[OrderRow]:
    """A row per such search."""
    return [
        OrderRow(study, number(own.h_ind.weight_decay), number(own.h_ens.weight_decay))
        for study, own in results.items()
        if study.order_search
    ]

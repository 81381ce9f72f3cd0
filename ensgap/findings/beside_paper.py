"""How near the cells of a study come to the paper's, in one sentence, from the table of its report."""

import csv
from collections.abc import Sequence

from ensgap.findings.studies import PublishedStudy
from ensgap.report.paper_cells import NEAR
from ensgap.report.weight_decay_paper import EQUAL


def differences(study: PublishedStudy, table: str = "paper") -> list[float]:
    """Ours minus the paper's, in combined SEM, of all cells that both have."""
    file = study.path / "tables" / f"{table}.csv"
    if not file.exists():
        return []
    with file.open() as lines:
        return [float(row["difference"]) for row in csv.DictReader(lines) if row["difference"]]


def near(study: PublishedStudy) -> str:
    """How many cells are near the paper's, in short: `8 of 18 (at the paper's own weight decays 5 of 18)`."""
    equal = differences(study, EQUAL)
    return _near(differences(study)) + (f" (at the paper's own weight decays {_near(equal)})" if equal else "")


def beside_paper(study: PublishedStudy) -> str:
    """How many cells are near the paper's, and in which direction the others lie; empty without such cells."""
    at_optima, equal = _sentence(differences(study)), _sentence(differences(study, EQUAL))
    return f"{at_optima} At the paper's own weight decays:{equal.partition(':')[2]}" if equal else at_optima


def _sentence(found: Sequence[float]) -> str:
    if not found:
        return ""
    above, below = [d for d in found if d > NEAR], [d for d in found if d < -NEAR]
    start = f"Beside the paper: {_near(found)} cells lie within {NEAR:g} combined SEM of the paper's"
    if not above and not below:
        return f"{start}."
    ways = [f"{len(above)} higher (by up to {max(above):.1f})"] if above else []
    ways += [f"{len(below)} lower (by up to {-min(below):.1f})"] if below else []
    return f"{start}; of the others ours are {' and '.join(ways)}."


def _near(found: Sequence[float]) -> str:
    return f"{sum(abs(d) <= NEAR for d in found)} of {len(found)}"

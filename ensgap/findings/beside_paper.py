"""How near the cells of a study come to the paper's, in one sentence, from the table of its report."""

import csv

from ensgap.findings.studies import PublishedStudy
from ensgap.report.paper_cells import NEAR


def differences(study: PublishedStudy) -> list[float]:
    """Ours minus the paper's, in combined SEM, of all cells that both have."""
    file = study.path / "tables" / "paper.csv"
    if not file.exists():
        return []
    with file.open() as lines:
        return [float(row["difference"]) for row in csv.DictReader(lines) if row["difference"] not in ("", "nan")]


def beside_paper(study: PublishedStudy) -> str:
    """How many cells are near the paper's, and in which direction the others lie; empty without such cells."""
    found = differences(study)
    if not found:
        return ""
    above, below = [d for d in found if d > NEAR], [d for d in found if d < -NEAR]
    near = len(found) - len(above) - len(below)
    start = f"Beside the paper: {near} of {len(found)} cells lie within {NEAR:g} combined SEM of the paper's"
    if near == len(found):
        return f"{start}."
    ways = [f"{len(above)} higher (by up to {max(above):.1f})"] if above else []
    ways += [f"{len(below)} lower (by up to {-min(below):.1f})"] if below else []
    return f"{start}; of the others ours are {' and '.join(ways)}."

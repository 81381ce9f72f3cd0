"""What studies of BatchEnsemble say to claim 5."""

from collections.abc import Sequence

from ensgap.findings.rule import Part, Side, part_of
from ensgap.findings.studies import PublishedStudy
from ensgap.gap import Estimate
from ensgap.report.batch_ensemble import INITS
from ensgap.results.batch_ensemble import CLEAR, TRUST, BatchEnsembleCell, BatchEnsembleResults

SEVERAL = 2.0
RULE = (
    "The leak is how far the average member's NLL on its holdout follows training instead of test data: 0% as on test "
    f"data, 100% as on training data. A holdout leaks if the leak's 95% interval lies above {TRUST:.0%}, and may be "
    f"trusted if it lies below {CLEAR:.0%}. A shared holdout cannot leak, for no member trains on it: its value shows "
    "how far off the measure itself is."
)


def fast_weights(_: PublishedStudy, results: BatchEnsembleResults) -> list[Part]:
    """Claim 5: random signs against Gaussian fast weights."""
    signs = [cell for cell in results.cells if cell.init == "sign"]
    gaussian = [cell for cell in results.cells if cell.init.startswith("gaussian")]
    pairs = [(s, g) for s in signs for g in gaussian if s.holdout == g.holdout and s.replicates == g.replicates]
    if not pairs:
        return []
    diversity = [s.stopped.figures["diversity"] - SEVERAL * g.stopped.figures["diversity"] for s, g in pairs]
    several = part_of(f"random signs: more than {SEVERAL:g} times the diversity", diversity)
    return [
        Part(several.what, several.cells, _times(pairs)),
        _leaks(results, "random signs: holdouts that members do not share do not leak", signs, "trust it", "leaks"),
        _leaks(results, "Gaussian: they do", gaussian, "leaks", "trust it"),
    ]


def _times(pairs: Sequence[tuple[BatchEnsembleCell, BatchEnsembleCell]]) -> str:
    """How many times the diversity, by the Gaussian that signs are compared with."""
    found: dict[str, list[float]] = {}
    for signs, other in pairs:
        ratio = signs.stopped.estimate("diversity").mean / other.stopped.estimate("diversity").mean
        found.setdefault(other.init, []).append(ratio)
    said = []
    for init, ratios in found.items():
        ends = dict.fromkeys(f"{end:.1f}" for end in (min(ratios), max(ratios)))
        said.append(f"{' to '.join(ends)} times that of {INITS.get(init, init)}")
    return ", ".join(said)


def _leaks(results: BatchEnsembleResults, what: str, cells: Sequence[BatchEnsembleCell], good: str, bad: str) -> Part:
    """What the holdouts say that members do not share; the shared ones stand beside them for control."""
    sides: dict[str, Side] = {good: "for", bad: "against"}
    said: dict[bool, list[str]] = {False: [], True: []}
    for cell in cells:
        if (leak := cell.leak()) is not None:
            name = f"{INITS.get(cell.init, cell.init)}, {results.design.name(cell.holdout.order)}"
            said[cell.shared].append(f"{name} {_percent(leak)}")
    verdicts = tuple(sides.get(cell.verdict(), "open") for cell in cells if not cell.shared and cell.leak() is not None)
    control = f"; for control {'; '.join(said[True])}" if said[True] else ""
    return Part(what, verdicts, f"leaks: {'; '.join(said[False])}{control}", "holdouts")


def _percent(leak: Estimate) -> str:
    return f"{leak.mean:.0%} ({leak.low:.0%} to {leak.high:.0%})"

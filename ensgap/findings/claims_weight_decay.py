"""What searches of the weight decay say to claim 1."""

from math import comb

from ensgap.findings.rule import Part, Side
from ensgap.findings.studies import PublishedStudy
from ensgap.results.optima import StudyResults
from ensgap.results.shift import Shift, shift_of

FIRM = 0.95
FEWEST = 5
"""Replicates whose resamples can tell 93% from 97%."""
UNMOVED = ("ag_news",)
"""Tasks on which the paper found the same optimum for all sizes."""
RULE = (
    f"A search speaks for it if at least {FIRM:.0%} of the resamples of its replicates choose as it says, against it "
    f"if at most {1 - FIRM:.0%} do. Fewer than {FEWEST} replicates leave it undecided: 3 have {3**3} resamples, only "
    f"{comb(5, 3)} of them distinct, which cannot tell 93% from 97%. The optimality gap "
    "on test data stands beside it and is no part of the claim."
)


def less_decay(study: PublishedStudy, results: StudyResults) -> list[Part]:
    """Claim 1: the optimum moves to less weight decay as the ensemble grows, or stays where the paper found that."""
    if study.order_search or study.control:
        return []
    shift, stays = shift_of(results), study.family in UNMOVED
    few = f"; {_few(shift)}" if _few(shift) else ""
    best = ", ".join(_runs(shift.best))
    numbers = (
        f"of the resamples of {shift.replicates} replicates {shift.less:.0%} choose less for the ensemble, "
        f"{shift.same:.0%} the same, {shift.more:.0%} more; best for {best}; "
        f"optimality gap {results.gap[results.objective]}{few}"
    )
    what = "the optimum stays" if stays else "the optimum moves to less weight decay"
    return [Part(what, (_side(shift, stays),), numbers, "choices", brief=_brief(shift, stays))]


def _side(shift: Shift, stays: bool) -> Side:
    expected = shift.same if stays else shift.less
    if shift.replicates < FEWEST:
        return "open"
    return "for" if expected >= FIRM else "against" if expected <= 1 - FIRM else "open"


def _brief(shift: Shift, stays: bool) -> str:
    """What the verdict alone would hide."""
    moved = f"the optimum moves in {shift.less:.0%} of the resamples"
    if stays and shift.less > 0.5:
        moved = f"the BiLSTM's optimum moves too, in {shift.less:.0%} of the resamples"
    return "; ".join(filter(None, (moved, _few(shift))))


def _few(shift: Shift) -> str:
    return f"{shift.replicates} replicates are too few to say" if shift.replicates < FEWEST else ""


def _runs(best: tuple[float, ...]) -> list[str]:
    """Sizes with the same optimum together: `1 member: 0.003162`, `2 to 4: 0.002371`."""
    found, first = [], 0
    for i in range(1, len(best) + 1):
        if i == len(best) or best[i] != best[first]:
            sizes = f"{first + 1}" if i == first + 1 else f"{first + 1} to {i}"
            found.append(f"{sizes}{' member' if i == 1 else ' members'}: {best[first]:.4g}")
            first = i
    return found

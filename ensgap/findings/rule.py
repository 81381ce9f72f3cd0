"""When a claim holds: the rule, fixed before the figures."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ensgap.gap import Array, Estimate

Side = Literal["for", "against", "open"]
Verdict = Literal["holds", "does not hold", "undecided"]
MOSTLY_AGAINST = 0.25
RULE = (
    "A claim has parts, and a part has cells: a holdout and a validation share, say. A cell speaks for the part if the "
    "95% interval of a difference, paired by replicate, lies on the claim's side of 0; against it, if it lies on the "
    "other side. A part holds if more than half of its cells speak for it and none against it; it does not hold if a "
    "quarter of them or more speak against it; otherwise it is undecided. A claim holds if all its parts do, and does "
    "not hold if one of them does not."
)


@dataclass(frozen=True)
class Part:
    """One thing a claim says, and what its cells say to it."""

    what: str
    cells: tuple[Side, ...]
    numbers: str

    @property
    def verdict(self) -> Verdict:
        """By the rule."""
        speak_for, against = self.cells.count("for"), self.cells.count("against")
        if against and against >= MOSTLY_AGAINST * len(self.cells):
            return "does not hold"
        return "holds" if speak_for > len(self.cells) / 2 and not against else "undecided"


def combined(parts: Sequence[Part]) -> Verdict:
    """What the parts say together."""
    verdicts = {part.verdict for part in parts}
    if "does not hold" in verdicts:
        return "does not hold"
    return "holds" if verdicts == {"holds"} else "undecided"


def side_of(difference: Estimate) -> Side:
    """What a difference says whose claim is that it is above 0."""
    sides: dict[str, Side] = {"positive": "for", "negative": "against"}
    return sides.get(difference.verdict, "open")


def part_of(what: str, differences: Sequence[Array], digits: int = 4, scale: float = 1.0, unit: str = "") -> Part:
    """A part that claims every cell's paired differences [replicates] to be above 0."""
    cells = [Estimate.of(values) for values in differences]
    return Part(what, tuple(map(side_of, cells)), in_numbers(differences, digits, scale, unit))


def in_numbers(differences: Sequence[Array], digits: int = 4, scale: float = 1.0, unit: str = "") -> str:
    """In how many cells a difference is above and below 0, and its mean over cells, with the interval over replicates
    where all cells have the same number of them.
    """
    if not differences:
        return "no cell to compare"
    cells = [Estimate.of(values) for values in differences]
    above, below = (sum(cell.verdict == verdict for cell in cells) for verdict in ("positive", "negative"))
    counts = f"above 0 in {above} and below 0 in {below} of {len(cells)} cells"
    if len({len(values) for values in differences}) > 1:
        return counts
    return f"{counts}, on average {_shown(Estimate.of(np.mean(differences, axis=0)), digits, scale)}{unit}"


def _shown(estimate: Estimate, digits: int, scale: float) -> str:
    mean, low, high = (f"{scale * value:+.{digits}f}" for value in (estimate.mean, estimate.low, estimate.high))
    return mean if math.isnan(estimate.sem) else f"{mean} (95% interval {low} to {high})"

"""When a claim holds: the rule, fixed before the figures."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ensgap.gap import Array, Estimate

Side = Literal["for", "against", "open"]
Verdict = Literal["holds", "does not hold", "undecided", "not tested"]
MOSTLY_AGAINST = 0.25
RULE = (
    "A claim has parts, and a part has cells: a holdout and a validation share, say. A cell speaks for the part if the "
    "95% interval of a difference, paired by replicate, lies on the claim's side of 0; against it, if it lies on the "
    "other side; claims with another rule say so. A part holds if more than half of its cells speak for it and none "
    "against it; it does not hold if a quarter of them or more speak against it; otherwise it is undecided, and "
    "without a cell not tested. A claim holds if all its parts do, and does not hold if one of them does not."
)


@dataclass(frozen=True)
class Part:
    """One thing a claim says, and what its cells say to it."""

    what: str
    cells: tuple[Side, ...]
    numbers: str
    of: str = "cells"  # what a cell is
    exists: bool = False  # whether the claim is that some cell is so, which no other cell can refute
    brief: str = ""  # what must be said beside the verdict wherever it is shown
    mean: Estimate | None = None  # of the differences, over cells

    @property
    def verdict(self) -> Verdict:
        """By the rule."""
        speak_for, against = self.cells.count("for"), self.cells.count("against")
        if not self.cells:
            return "not tested"
        if self.exists:
            return "holds" if speak_for else "undecided"
        if against and against >= MOSTLY_AGAINST * len(self.cells):
            return "does not hold"
        return "holds" if speak_for > len(self.cells) / 2 and not against else "undecided"

    @property
    def counts(self) -> str:
        """How many cells speak for it and against it."""
        speak_for, against = self.cells.count("for"), self.cells.count("against")
        one = len(self.cells) == 1
        return f"{speak_for} for it and {against} against it, of {len(self.cells)} {self.of[:-1] if one else self.of}"


def combined(parts: Sequence[Part]) -> Verdict:
    """What the parts say together."""
    verdicts = {part.verdict for part in parts}
    if "does not hold" in verdicts:
        return "does not hold"
    if len(verdicts) > 1:
        return "undecided"
    return verdicts.pop() if verdicts else "not tested"


def side_of(difference: Estimate) -> Side:
    """What a difference says whose claim is that it is above 0."""
    sides: dict[str, Side] = {"positive": "for", "negative": "against"}
    return sides.get(difference.verdict, "open")


def part_of(
    what: str,
    differences: Sequence[Array],
    digits: int = 4,
    scale: float = 1.0,
    unit: str = "",
    of: str = "cells",
    exists: bool = False,
) -> Part:
    """A part that claims every cell's paired differences [replicates] to be above 0, or some cell's (`exists`)."""
    cells = tuple(side_of(Estimate.of(values)) for values in differences)
    return Part(what, cells, on_average(differences, digits, scale, unit), of, exists, mean=mean_of(differences))


def mean_of(differences: Sequence[Array]) -> Estimate | None:
    """Over cells, with the interval over replicates; None where cells have different numbers of them."""
    if len({len(values) for values in differences}) != 1:
        return None
    return Estimate.of(np.mean(differences, axis=0))


def on_average(differences: Sequence[Array], digits: int = 4, scale: float = 1.0, unit: str = "") -> str:
    """In how many cells the mean difference is above 0, and its mean over cells."""
    if not differences:
        return ""
    above = sum(float(np.mean(values)) > 0 for values in differences)
    mean = mean_of(differences)
    counted = f"the mean is above 0 in {above}"
    return counted if mean is None else f"{counted}, and on average {shown(mean, digits, scale)}{unit}"


def shown(estimate: Estimate, digits: int = 4, scale: float = 1.0) -> str:
    """A difference with its interval."""
    mean, low, high = (f"{scale * value:+.{digits}f}" for value in (estimate.mean, estimate.low, estimate.high))
    return mean if math.isnan(estimate.sem) else f"{mean} (95% interval {low} to {high})"

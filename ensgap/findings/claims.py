"""The paper's six claims, answered one by one from the published studies by the rule of `rule.py`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ensgap.findings.rule import Part, Side, Verdict, combined, in_numbers, part_of, side_of
from ensgap.findings.studies import PublishedStudy, Worth, read_published
from ensgap.folder import StudyFolder
from ensgap.gap import Array, Estimate
from ensgap.results.batch_ensemble import BatchEnsembleCell, BatchEnsembleResults, read_batch_ensemble
from ensgap.results.early_stopping import StoppingCell, StoppingResults, read_stopping
from ensgap.results.optima import StudyResults, read_results
from ensgap.results.shift import shift_of
from ensgap.results.temperature import TemperatureCell, TemperatureResults, Variant, read_temperature
from ensgap.stopping import Rule

READ: Mapping[str, Callable[[StudyFolder], Any]] = {
    "weight_decay": read_results,
    "early_stopping": read_stopping,
    "temperature": read_temperature,
    "batch_ensemble": read_batch_ensemble,
}
FIRM = 0.95
LARGE_SHARE = 0.2
SEVERAL = 2.0
MARGIN = 0.01
"""A temperature adds nothing if it surely lowers the NLL by less than this share of it."""
UNMOVED = ("ag_news",)
"""Tasks on which the paper found the same optimum for all sizes."""


@dataclass(frozen=True)
class Answer:
    """What one study says to a claim."""

    on: str  # its task, and whatever tells it from other studies of that task
    worth: Worth
    parts: tuple[Part, ...]

    @property
    def verdict(self) -> Verdict:
        """By the rule."""
        return combined(self.parts)


@dataclass(frozen=True)
class Claim:
    """A claim, and how a study answers it."""

    number: int
    text: str
    study: str
    answer: Callable[[PublishedStudy, Any], list[Part]]  # from the study and its results

    @property
    def command(self) -> str:
        """What has to be run, where no study answers it yet."""
        preset = "" if self.study == "batch_ensemble" else " --preset paper"
        return f"python studies/{self.study}.py --task {'digits' if not preset else 'nci1'}{preset}"


@dataclass(frozen=True)
class Answered:
    """A claim with the answers of all studies that have one; none if it is not answered yet."""

    claim: Claim
    answers: tuple[Answer, ...]


def answer_claims(published: Path) -> list[Answered]:
    """All six, from whatever is published."""
    studies = [(study, READ[study.name](study.folder)) for study in read_published(published) if study.name in READ]
    found = []
    for claim in CLAIMS:
        answers = ((study, claim.answer(study, results)) for study, results in studies if study.name == claim.study)
        found.append(Answered(claim, tuple(Answer(s.on, s.worth, tuple(parts)) for s, parts in answers if parts)))
    return found


def _less_decay(study: PublishedStudy, results: StudyResults) -> list[Part]:
    if study.config["holdout"] != study.config["members"]:
        return []  # the paper's searches have a shared holdout
    shift = shift_of(results)
    expected = shift.same if study.family in UNMOVED else shift.less
    side: Side = "for" if expected >= FIRM else "against" if expected <= 1 - FIRM else "open"
    side = side if shift.replicates > 1 else "open"
    best = ", ".join(f"{value:.4g}" for value in shift.best)
    gap = results.gap[results.objective]
    numbers = (
        f"best weight decay for 1 to {len(shift.best)} members: {best}; of the resamples of the {shift.replicates} "
        f"replicates {shift.less:.0%} choose less for the ensemble, {shift.same:.0%} the same, {shift.more:.0%} more; "
        f"optimality gap {gap}"
    )
    what = "the optimum stays" if study.family in UNMOVED else "the optimum moves to less weight decay"
    return [Part(f"{what} ({FIRM:.0%} of the resamples say so)", (side,), numbers)]


def _of_paper(order: int, members: int) -> bool:
    """Whether the paper has that holdout: disjoint, overlapping, shared."""
    return order in (1, 2, members)


def _joint_stopping(study: PublishedStudy, results: StoppingResults) -> list[Part]:
    own = (cell for cell in results.cells if _of_paper(cell.holdout.order, study.config["members"]))
    cells = [cell for cell in own if "joint" in cell.by]

    def more(figure: str, first: Rule, then: Rule) -> list[Array]:
        return [cell.by[first].figures[figure] - cell.by[then].figures[figure] for cell in cells]

    return [
        part_of("trains longer", more("epochs", "joint", "individual"), 1, unit=" epochs"),
        part_of("lower ensemble NLL", more("ensemble_nll", "individual", "joint")),
        part_of("lower ensemble error", more("ensemble_error", "individual", "joint"), 2, 100, " points"),
    ]


def _joint_temperature(study: PublishedStudy, results: TemperatureResults) -> list[Part]:
    own = (cell for cell in results.cells if _of_paper(cell.holdout.order, study.config["members"]))
    cells = [cell for cell in own if Variant("joint") in cell.by]

    def more(metric: str, first: Variant, then: Variant) -> list[Array]:
        def of(cell: TemperatureCell, variant: Variant) -> Array:
            return cell.by[variant].figures[f"ensemble_{metric}"]

        return [of(cell, first) - of(cell, then) for cell in cells]

    individual, joint, none = Variant("individual"), Variant("joint"), Variant("none")
    harm = more("ece", individual, none)
    sides = {side_of(Estimate.of(values)) for values in harm}
    can: Side = "for" if "for" in sides else "against" if sides == {"against"} else "open"
    return [
        part_of("lower ensemble NLL than individual ones", more("nll", individual, joint)),
        Part("individual ones raise the ensemble's ECE somewhere", (can,), in_numbers(harm)),
    ]


def _holdouts(study: PublishedStudy, results: StoppingResults) -> list[Part]:
    members = study.config["members"]
    large, disjoint = [], []
    for cell in results.cells:
        share, order = cell.holdout.fraction, cell.holdout.order
        if order == 2 < members and share >= LARGE_SHARE and (shared := results.cell(members, share)):
            large.append(_paired(shared, "joint", cell, "joint"))
        if order in (2, members) and (apart := results.cell(1, share)):
            disjoint.append(_paired(apart, "individual", cell, "joint"))
    found = [
        (f"overlapping gives a lower NLL than shared, from {LARGE_SHARE:.0%} held out on, stopping jointly", large),
        ("disjoint gives a higher NLL than the others, which stop jointly", disjoint),
    ]
    return [part_of(what, differences) for what, differences in found] if large or disjoint else []


def _paired(first: StoppingCell, rule: Rule, then: StoppingCell, other: Rule) -> Array:
    """The ensemble's NLL of one cell minus that of another, at the replicates that both have."""
    common = [replicate for replicate in first.replicates if replicate in then.replicates]

    def nll(cell: StoppingCell, by: Rule) -> Array:
        return cell.by[by].figures["ensemble_nll"][[cell.replicates.index(replicate) for replicate in common]]

    return nll(first, rule) - nll(then, other)


def _fast_weights(_: PublishedStudy, results: BatchEnsembleResults) -> list[Part]:
    signs = [cell for cell in results.cells if cell.init == "sign"]
    gaussian = [cell for cell in results.cells if cell.init.startswith("gaussian")]
    pairs = [(s, g) for s in signs for g in gaussian if s.holdout == g.holdout and s.replicates == g.replicates]
    if not pairs:
        return []
    diversity = [s.stopped.figures["diversity"] - SEVERAL * g.stopped.figures["diversity"] for s, g in pairs]
    ratios = [s.stopped.estimate("diversity").mean / g.stopped.estimate("diversity").mean for s, g in pairs]
    times = f"{min(ratios):.1f} to {max(ratios):.1f} times; random sign − {SEVERAL:g} × Gaussian "
    several = part_of(f"random signs: more than {SEVERAL:g} times the diversity", diversity)
    return [
        Part(several.what, several.cells, times + several.numbers),
        _leaks("random signs: holdouts that members do not share do not leak", signs, "trust it", "leaks"),
        _leaks("Gaussian: they do", gaussian, "leaks", "trust it"),
    ]


def _leaks(what: str, cells: Sequence[BatchEnsembleCell], good: str, bad: str) -> Part:
    own = [(cell.verdict(), leak) for cell in cells if not cell.shared and (leak := cell.leak()) is not None]
    sides: dict[str, Side] = {good: "for", bad: "against"}
    leaks = ", ".join(f"{leak.mean:.0%}" for _, leak in own)
    return Part(what, tuple(sides.get(verdict, "open") for verdict, _ in own), f"leaks of {leaks}")


def _nothing_to_add(study: PublishedStudy, results: StoppingResults) -> list[Part]:
    own = (cell for cell in results.cells if _of_paper(cell.holdout.order, study.config["members"]))
    cells = [cell for cell in own if ("joint", False) in cell.scaled]
    plain = [cell.by["joint"].figures["ensemble_nll"] for cell in cells]
    gains = [p - c.scaled["joint", False].figures["ensemble_nll"] for p, c in zip(plain, cells, strict=True)]
    sides = tuple(_nothing(Estimate.of(gain), MARGIN * float(np.mean(p))) for gain, p in zip(gains, plain, strict=True))
    what = f"a temperature lowers the ensemble's NLL by less than {MARGIN:.0%} of it"
    return [Part(what, sides, f"NLL without − with a temperature {in_numbers(gains)}")] if cells else []


def _nothing(gain: Estimate, margin: float) -> Side:
    """A gain surely below the margin speaks for the claim; one surely above 0 that may reach it, against."""
    return "for" if gain.high < margin else "against" if gain.low > 0 else "open"


CLAIMS = (
    Claim(
        1,
        "The best weight decay for NLL moves to less regularisation as the ensemble grows (not for the BiLSTM).",
        "weight_decay",
        _less_decay,
    ),
    Claim(
        2,
        "Joint early stopping trains longer than individual stopping and gives a lower ensemble error and NLL.",
        "early_stopping",
        _joint_stopping,
    ),
    Claim(
        3,
        "A joint temperature is better for the ensemble than individual ones, which can hurt its ECE.",
        "temperature",
        _joint_temperature,
    ),
    Claim(
        4,
        "With large validation shares overlapping holdouts beat shared ones; disjoint ones are worst for stopping.",
        "early_stopping",
        _holdouts,
    ),
    Claim(
        5,
        "Random-sign fast weights have several times the diversity of Gaussian ones, and their holdouts do not leak.",
        "batch_ensemble",
        _fast_weights,
    ),
    Claim(
        6,
        "After joint early stopping, temperature scaling adds nothing significant.",
        "early_stopping",
        _nothing_to_add,
    ),
)

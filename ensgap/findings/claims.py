"""The paper's six claims, answered one by one from the published studies by the rule of `rule.py`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ensgap.findings import claims_batch_ensemble, claims_early_stopping, claims_temperature, claims_weight_decay
from ensgap.findings.rule import Part, Verdict, combined
from ensgap.findings.studies import WORTHS, PublishedStudy, Worth
from ensgap.folder import StudyFolder
from ensgap.results.batch_ensemble import read_batch_ensemble
from ensgap.results.early_stopping import read_stopping
from ensgap.results.optima import read_results
from ensgap.results.temperature import read_temperature

READ: Mapping[str, Callable[[StudyFolder], Any]] = {
    "weight_decay": read_results,
    "early_stopping": read_stopping,
    "temperature": read_temperature,
    "batch_ensemble": read_batch_ensemble,
}
Results = Mapping[PublishedStudy, Any]
"""Of every published study that claims are answered from, in reading order."""


@dataclass(frozen=True)
class Answer:
    """What one study says to a claim."""

    study: PublishedStudy
    parts: tuple[Part, ...]

    @property
    def verdict(self) -> Verdict:
        """By the rule."""
        return combined(self.parts)


@dataclass(frozen=True)
class Claim:
    """A claim, and how studies answer it."""

    number: int
    text: str
    answers: Mapping[str, Callable[[PublishedStudy, Any], list[Part]]]  # by kind of study, from it and its results
    rule: str = ""  # where the general one does not say it all

    @property
    def command(self) -> str:
        """What has to be run, where no study answers it yet."""
        study = next(iter(self.answers))
        preset = "" if study == "batch_ensemble" else " --preset paper"
        return f"python studies/{study}.py --task {'digits' if not preset else 'nci1'}{preset}"


@dataclass(frozen=True)
class Answered:
    """A claim with the answers of all studies that have one; none if it is not answered yet."""

    claim: Claim
    answers: tuple[Answer, ...]

    def together(self, worth: Worth) -> dict[str, tuple[Answer, ...]]:
        """The answers of that worth by what they are on: a stopping and a temperature study may be on the same."""
        found: dict[str, tuple[Answer, ...]] = {}
        for answer in self.answers:
            if answer.study.worth == worth:
                found[answer.study.on] = (*found.get(answer.study.on, ()), answer)
        return found

    def verdicts(self, worth: Worth) -> list[Verdict]:
        """One for each that `together` has."""
        return [combined(parts_of(answers)) for answers in self.together(worth).values()]


def parts_of(answers: Sequence[Answer]) -> list[Part]:
    """Of all these."""
    return [part for answer in answers for part in answer.parts]


def read_all(studies: Sequence[PublishedStudy]) -> Results:
    """The results of those that claims are answered from."""
    return {study: READ[study.name](study.folder) for study in studies if study.name in READ}


def answer_claims(results: Results) -> list[Answered]:
    """All six, from whatever is published."""
    found = []
    for claim in CLAIMS:
        answers = [
            Answer(study, tuple(claim.answers[study.name](study, own)))
            for study, own in results.items()
            if study.name in claim.answers
        ]
        answers.sort(key=lambda answer: WORTHS.index(answer.study.worth))
        found.append(Answered(claim, tuple(answer for answer in answers if answer.parts)))
    return found


CLAIMS = (
    Claim(
        1,
        "The best weight decay for NLL moves to less regularisation as the ensemble grows (not for the BiLSTM).",
        {"weight_decay": claims_weight_decay.less_decay},
        claims_weight_decay.RULE,
    ),
    Claim(
        2,
        "Joint early stopping trains longer than individual stopping and gives a lower ensemble error and NLL, in "
        "every holdout.",
        {"early_stopping": claims_early_stopping.joint_stopping},
        claims_early_stopping.HOLDOUTS_RULE,
    ),
    Claim(
        3,
        "A joint temperature is better for the ensemble than individual ones, which can hurt its ECE.",
        {"temperature": claims_temperature.joint_temperature},
        claims_temperature.CAN_RULE,
    ),
    Claim(
        4,
        "With large validation shares overlapping holdouts beat shared ones (GCN, MLP); disjoint ones are worst for "
        "stopping.",
        {
            "early_stopping": claims_early_stopping.stopping_holdouts,
            "temperature": claims_temperature.temperature_holdouts,
        },
        "The paper says the first of temperatures and of early stopping; each is a part of its own.",
    ),
    Claim(
        5,
        "Random-sign fast weights have several times the diversity of Gaussian ones, and their holdouts do not leak.",
        {"batch_ensemble": claims_batch_ensemble.fast_weights},
        claims_batch_ensemble.RULE,
    ),
    Claim(
        6,
        "After joint early stopping, temperature scaling adds nothing significant.",
        {"early_stopping": claims_early_stopping.nothing_to_add},
        claims_early_stopping.NOTHING_RULE,
    ),
)

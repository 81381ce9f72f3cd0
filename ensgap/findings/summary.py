"""What was found, in a few lines for the top of the page; every number comes from the studies."""

from collections.abc import Iterator, Sequence

from ensgap.findings.beside_paper import differences, near
from ensgap.findings.claims import Answered, Results, parts_of
from ensgap.findings.rule import Part, Verdict, shown
from ensgap.findings.section import Section
from ensgap.findings.studies import WORTHS, PublishedStudy, Worth
from ensgap.gap import Estimate
from ensgap.results.optima import StudyResults

SAYS: dict[Verdict, str] = {
    "holds": "that hold",
    "does not hold": "that do not hold",
    "undecided": "undecided",
    "not tested": "not tested",
}
WHAT = {"weight_decay": "weight decay", "early_stopping": "early stopping", "temperature": "temperature"}


def summary(answered: Sequence[Answered], results: Results, sections: Sequence[Section]) -> list[str]:
    """The lines, each with a topic in bold."""
    lines = [claims_line(answered, worth) for worth in WORTHS]
    lines += [gaps_line(results), stopping_line(answered), temperature_line(answered), paper_line(results)]
    if sections:
        lines.append(f"**Beyond the paper**: {'; '.join(section.brief for section in sections)}.")
    return [line for line in lines if line]


def where(worth: Worth, studies: Sequence[PublishedStudy]) -> str:
    """What is of that worth: `NCI1, as in the paper`, `Scaled down`, `digits (not in the paper)`."""
    data = list(dict.fromkeys(study.data for study in studies if study.worth == worth))
    if worth == "scaled down" or len(data) != 1:
        return worth.capitalize()
    return f"{data[0]}, as in the paper" if worth == "as in the paper" else f"{data[0]} ({worth})"


def claims_line(answered: Sequence[Answered], worth: Worth) -> str:
    """Which claims hold there."""
    found: dict[Verdict, list[str]] = {verdict: [] for verdict in SAYS}
    studies = [answer.study for one in answered for answer in one.answers]
    several = len({study.data for study in studies if study.worth == worth}) > 1
    for one in answered:
        together = one.together(worth)
        for (_, answers), verdict in zip(together.items(), one.verdicts(worth), strict=True):
            found[verdict].append(f"{one.claim.number}{f' ({answers[0].study.data})' if several else ''}")
        if not together:
            found["not tested"].append(str(one.claim.number))
    if not any(study.worth == worth for study in studies):
        return ""
    said = "; ".join(f"{SAYS[verdict]}: {', '.join(dict.fromkeys(own))}" for verdict, own in found.items() if own)
    return f"**{where(worth, studies)}**. Claims {said}."


def gaps_line(results: Results) -> str:
    """What copying the single network's weight decay costs."""
    said = []
    for study, own in sorted(results.items(), key=lambda item: WORTHS.index(item[0].worth)):
        if study.name != "weight_decay" or study.order_search or min(own.pairs, len(own.h_ind.replicates)) < 2:
            continue
        gap = own.gap[own.objective]
        scaled = " (scaled down)" if study.worth == "scaled down" else ""
        said.append(f"{study.data}{scaled} {shown(gap)}{_noisy(own)}")
    return f"**What copying one network's weight decay costs the ensemble** in test NLL: {'; '.join(said)}." * bool(
        said
    )


def _noisy(own: StudyResults) -> str:
    """How rarely the choice is repeated, where that is rare."""
    share = own.selection.ind.share
    return f", though resamples repeat the choice of one network's optimum {share:.0%} of the time" * (share < 0.5)


def stopping_line(answered: Sequence[Answered]) -> str:
    """What joint stopping does where it is as in the paper."""
    said = []
    for data, (longer, nll, error) in _paper_parts(answered, 2):
        if longer.mean and nll.mean and error.mean:
            lower, higher = nll.cells.count("for"), nll.cells.count("against")
            said.append(
                f"**Joint early stopping** on {data}, on average over {len(nll.cells)} holdouts, trains "
                f"{longer.mean.mean:.1f} epochs longer and lowers the ensemble's NLL by {_plain(nll.mean)} and its "
                f"error by {100 * error.mean.mean:.2f} points; the NLL is surely lower in {lower} of them and surely "
                f"higher in {higher}."
            )
    return " ".join(said)


def temperature_line(answered: Sequence[Answered]) -> str:
    """What joint temperatures and overlapping holdouts do where they are as in the paper."""
    said = [
        f"**A joint temperature** on {data} gives an NLL lower by {_plain(part.mean)} than individual ones, on average "
        f"over {len(part.cells)} holdouts"
        for data, (part, *_) in _paper_parts(answered, 3)
        if part.mean is not None
    ]
    said += [
        f"with it, overlapping holdouts beat shared ones surely in {part.cells.count('for')} of {len(part.cells)} "
        "large shares"
        for _, parts in _paper_parts(answered, 4)
        for part in parts
        if part.what.startswith("with a joint temperature") and part.cells
    ]
    return f"{'; '.join(said)}." * bool(said)


def paper_line(results: Results) -> str:
    """How near the paper's own figures are."""
    said = [f"{study.data}'s {WHAT[study.name]}: {near(study)}" for study in results if differences(study)]
    return f"**Cells within 2 combined SEM of the paper's**: {'; '.join(said)}." * bool(said)


def _paper_parts(answered: Sequence[Answered], number: int) -> Iterator[tuple[str, list[Part]]]:
    for one in answered:
        if one.claim.number == number:
            for answers in one.together("as in the paper").values():
                yield answers[0].study.data, parts_of(answers)


def _plain(estimate: Estimate) -> str:
    return f"{estimate.mean:.4f} (95% interval {estimate.low:.4f} to {estimate.high:.4f})"

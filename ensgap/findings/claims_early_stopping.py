"""What studies of early stopping say to claims 2, 4 and 6."""

from dataclasses import replace

import numpy as np

from ensgap.findings.holdouts import LARGE_SHARE, large_pairs, of_paper, paired
from ensgap.findings.rule import Part, Side, mean_of, part_of, shown
from ensgap.findings.studies import PublishedStudy
from ensgap.gap import Array, Estimate
from ensgap.results.early_stopping import StoppingResults
from ensgap.stopping import Rule

MARGIN = 0.01
"""A temperature adds nothing if it surely lowers the NLL by less than this share of it."""
HOLDOUTS_RULE = (
    "“In every holdout” is judged by the rule above, which asks for less: that more than half of them say so surely "
    "and none the contrary. Beside the counts stands in how many the mean difference is above 0. Holdouts of "
    "order 3, which the paper does not have, are left out."
)
NOTHING_RULE = (
    f"A cell speaks for it if the 95% interval of what a temperature takes off the NLL lies below {MARGIN:.0%} of the "
    f"NLL, against it if the interval lies above 0 and reaches {MARGIN:.0%} or more. A temperature that does harm "
    "therefore speaks for the claim."
)


def joint_stopping(study: PublishedStudy, results: StoppingResults) -> list[Part]:
    """Claim 2: joint stopping against individual stopping."""
    own = (cell for cell in results.cells if of_paper(cell.holdout.order, study.config["members"]))
    cells = [cell for cell in own if "joint" in cell.by]

    def more(figure: str, first: Rule, then: Rule) -> list[Array]:
        return [cell.by[first].figures[figure] - cell.by[then].figures[figure] for cell in cells]

    nll, error = (more(f"ensemble_{metric}", "individual", "joint") for metric in ("nll", "error"))
    lower = sum(float(np.mean(values)) > 0 for values in nll)
    brief = f"the mean NLL is lower in {lower} of {len(nll)} holdouts"
    return [
        part_of("trains longer", more("epochs", "joint", "individual"), 1, unit=" epochs", of="holdouts"),
        replace(part_of("lower ensemble NLL", nll, of="holdouts"), brief=brief),
        part_of("lower ensemble error", error, 2, 100, " points", of="holdouts"),
    ]


def stopping_holdouts(study: PublishedStudy, results: StoppingResults) -> list[Part]:
    """Claim 4: overlapping against shared holdouts of large shares, and disjoint ones against both."""
    members = study.config["members"]
    if len(results.design.orders) < 2:
        return []
    large = [
        paired(shared.replicates, shared.by["joint"], cell.replicates, cell.by["joint"])
        for shared, cell in large_pairs(results.cells, members)
    ]
    disjoint = [
        paired(apart.replicates, apart.by["individual"], cell.replicates, cell.by["joint"])
        for cell in results.cells
        if cell.holdout.order in (2, members) and (apart := results.cell(1, cell.holdout.fraction))
    ]
    overlapping = f"stopping jointly, overlapping gives a lower NLL than shared from {LARGE_SHARE:.0%} held out on"
    return [
        part_of(overlapping, large),
        part_of("disjoint gives a higher NLL than the others, which stop jointly", disjoint),
    ]


def nothing_to_add(study: PublishedStudy, results: StoppingResults) -> list[Part]:
    """Claim 6: a temperature after joint stopping."""
    own = (cell for cell in results.cells if of_paper(cell.holdout.order, study.config["members"]))
    cells = [cell for cell in own if ("joint", False) in cell.scaled]
    plain = [cell.by["joint"].figures["ensemble_nll"] for cell in cells]
    gains = [p - c.scaled["joint", False].figures["ensemble_nll"] for p, c in zip(plain, cells, strict=True)]
    sides = tuple(_nothing(Estimate.of(gain), MARGIN * float(np.mean(p))) for gain, p in zip(gains, plain, strict=True))
    what = f"a temperature lowers the ensemble's NLL by less than {MARGIN:.0%} of it"
    mean = mean_of(gains)
    harm = sum(Estimate.of(gain).high < 0 for gain in gains)
    numbers = f"the temperature does harm in {harm}"
    if mean is not None:
        numbers += f", and takes off {shown(mean)} on average"
    return [Part(what, sides, numbers, mean=mean)] if cells else []


def _nothing(gain: Estimate, margin: float) -> Side:
    """A gain surely below the margin speaks for the claim; one surely above 0 that may reach it, against."""
    return "for" if gain.high < margin else "against" if gain.low > 0 else "open"

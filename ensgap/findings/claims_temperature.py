"""What studies of temperatures say to claims 3 and 4."""

from ensgap.findings.holdouts import LARGE_SHARE, large_pairs, of_paper, paired
from ensgap.findings.rule import Part, part_of, shown
from ensgap.findings.studies import PublishedStudy
from ensgap.gap import Array, Estimate
from ensgap.results.temperature import TemperatureResults, Variant

CAN_RULE = "“Can” holds if one cell speaks for it; cells that do not leave it undecided, for they cannot refute it."


def joint_temperature(study: PublishedStudy, results: TemperatureResults) -> list[Part]:
    """Claim 3: a joint temperature against individual ones, and those against none."""
    own = (cell for cell in results.cells if of_paper(cell.holdout.order, study.config["members"]))
    cells = [cell for cell in own if Variant("joint") in cell.by]

    def more(metric: str, first: Variant, then: Variant) -> list[Array]:
        name = f"ensemble_{metric}"
        return [cell.by[first].figures[name] - cell.by[then].figures[name] for cell in cells]

    individual, joint, none = Variant("individual"), Variant("joint"), Variant("none")
    return [
        part_of("lower ensemble NLL than individual ones", more("nll", individual, joint)),
        part_of("individual ones can raise the ensemble's ECE", more("ece", individual, none), exists=True),
    ]


def temperature_holdouts(study: PublishedStudy, results: TemperatureResults) -> list[Part]:
    """Claim 4: overlapping against shared holdouts of large shares."""
    if len(results.design.orders) < 2:
        return []
    joint, found, each = Variant("joint"), [], []
    for shared, cell in large_pairs(results.cells, study.config["members"]):
        found.append(paired(shared.replicates, shared.by[joint], cell.replicates, cell.by[joint]))
        each.append(f"{100 * cell.holdout.fraction:g}%: {shown(Estimate.of(-found[-1]))}")
    what = f"with a joint temperature, overlapping gives a lower NLL than shared from {LARGE_SHARE:.0%} held out on"
    part = part_of(what, found)
    numbers = f"overlapping − shared at {'; '.join(each)}" if each else ""
    return [Part(what, part.cells, numbers, mean=part.mean)]

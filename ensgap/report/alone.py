"""Whether the average member was better at its own optimum on test data: if not, a gap may come from its choice."""

import math
from typing import cast

from ensgap.gap import Estimate
from ensgap.hyperparameters import in_words
from ensgap.report.words import METRIC_WORDS, interval_of, signed
from ensgap.results.optima import StudyResults

FIRM = 0.95
"""A choice is firm if so many resamples repeat it."""


def advantage(results: StudyResults) -> Estimate:
    """The average member's test loss at h*_ens minus at h*_ind, paired by replicate. Positive: a network that works
    alone is better at h*_ind.
    """
    ind, ens = results.test["ind"], results.test["ens"]
    common = sorted(set(ind.replicates) & set(ens.replicates))
    at_ind, at_ens = (
        side.figures[f"avg_member_{results.objective}"][[side.replicates.index(r) for r in common]]
        for side in (ind, ens)
    )
    return Estimate.of(at_ens - at_ind)


def without_advantage(results: StudyResults) -> bool:
    """Whether there is a gap, although h*_ind showed no advantage even for the network it was chosen for."""
    differ = in_words(results.h_ind.setting) != in_words(results.h_ens.setting)
    found = differ and results.gap[results.objective].verdict == "positive"
    return found and advantage(results).verdict != "positive"


def doubt(results: StudyResults) -> str:
    """What to think of such a gap."""
    share, replicates = results.selection.ind.share, len(results.h_ind.replicates)
    if math.isnan(share):
        return "the gap may partly come from an imprecise h*_ind (one validation replicate chose it)"
    repeated = f"{share:.0%} of resamples of the {replicates} validation replicates repeat it"
    if share >= FIRM:
        kept = 1 - cast(float, results.config["val_fraction"])
        return f"h*_ind is a firm choice all the same ({repeated}), of networks trained on {kept:.0%} of the pool"
    return f"the gap may partly come from an imprecise h*_ind ({repeated})"


def alone_note(results: StudyResults) -> list[str]:
    """A sentence for the head of the report, if there is reason for one."""
    if not without_advantage(results):
        return []
    worse = advantage(results).verdict == "negative"
    how = "clearly worse" if worse else "not clearly better"
    return [f"On test data the average member was {how} at h*_ind: {in_numbers(results)}; {doubt(results)}."]


def in_numbers(results: StudyResults) -> str:
    """The advantage in a sentence."""
    objective, found = results.objective, advantage(results)
    return (
        f"its {METRIC_WORDS[objective].name} at h*_ens minus at h*_ind is {signed(objective, found.mean)} "
        f"({interval_of(objective, found)})"
    )

"""Advice, from the results alone: what to set, how sure that is, and what it would cost to be surer."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from ensgap.gap import RESAMPLES, Array, Estimate
from ensgap.hyperparameters import in_words
from ensgap.losses import objective_names
from ensgap.report.alone import FIRM, advantage, doubt, in_numbers, without_advantage
from ensgap.report.report import json_number
from ensgap.report.words import METRIC_WORDS, interval_of, signed, unit_of
from ensgap.results.greedy import GreedyResults
from ensgap.results.optima import StudyResults

MOST = 2000
"""Replicates beyond which no cost is named: nobody trains so many."""


@dataclass(frozen=True)
class Advice:
    """Sentences, and their numbers for programs."""

    sentences: tuple[str, ...]
    numbers: dict[str, Any]


def advise(results: StudyResults, greedy: GreedyResults | None) -> Advice:
    """What a user should do now."""
    gap = results.gap[results.objective]
    test_replicates = replicates_to_decide(gap, results.pairs)
    validation_replicates = replicates_for_firm_choice(results)
    sentences = [_what_to_set(results, gap)]
    sentences += _surer_gap(results, gap, test_replicates)
    sentences += _surer_choice(results, validation_replicates)
    if greedy is not None:
        sentences += _mixing(greedy)
    numbers = {
        "test_replicates_to_decide": test_replicates,
        "replicates_for_firm_choice": validation_replicates,
        "mean_regret_of_resampled_choices": json_number(mean_regret(results)),
        "seconds_per_test_replicate": seconds_per_test_replicate(results),
        "seconds_per_search_replicate": seconds_per_search_replicate(results),
    }
    return Advice(tuple(sentences), {"sentences": sentences} | numbers)


def replicates_to_decide(gap: Estimate, pairs: int) -> int | None:
    """The paired replicates at which the interval would exclude 0 if mean and spread stayed as they are; as many as
    there are if it does already, none if it would take thousands or nothing can be said.
    """
    if math.isnan(gap.sem) or gap.mean == 0:
        return None
    spread = gap.sem * math.sqrt(pairs)
    for count in range(max(pairs, 2), MOST + 1):
        if abs(gap.mean) > float(stdtrit(count - 1, 0.975)) * spread / math.sqrt(count):
            return count
    return None


def replicates_for_firm_choice(results: StudyResults) -> int | None:
    """The validation replicates with which resampling would choose the same two settings 95% of the time, if those to
    come are like those there are.
    """
    usable = [trial for trial in results.trials if trial.usable]
    tables = [np.stack([trial.figures[name] for trial in usable]) for name in objective_names(results.objective)]
    count = int(tables[0].shape[1])
    if count < 2:
        return None
    while count <= MOST:
        if _share_of_same_choice(tables, count) >= FIRM:
            return count
        count = math.ceil(1.25 * count)
    return None


def _share_of_same_choice(tables: Sequence[Array], count: int) -> float:  # tables: [settings, replicates] each
    replicates = tables[0].shape[1]
    draws = np.random.default_rng(0).multinomial(count, [1 / replicates] * replicates, size=RESAMPLES)
    same = [(table @ draws.T).argmin(0) == table.mean(1).argmin() for table in tables]
    return float(np.logical_and(*same).mean())


def seconds_per_test_replicate(results: StudyResults) -> float:
    """Of training one more pair: a replicate at each of the two optima."""
    tested = {id(side): side for side in results.test.values()}.values()
    return sum(side.seconds / max(1, len(side.replicates)) for side in tested)


def seconds_per_search_replicate(results: StudyResults) -> float:
    """Of training one more replicate of every setting."""
    return results.cost()["search_seconds"] / len(results.h_ind.replicates)


def _what_to_set(results: StudyResults, gap: Estimate) -> str:
    ind, ens = in_words(results.h_ind.setting), in_words(results.h_ens.setting)
    members = results.config["members"]
    if ind == ens:
        return f"Set {ens}, for an ensemble of {members} and for a single network alike."
    if gap.verdict == "positive":
        other = _but_by(results, ind)
        if without_advantage(results):
            worse = advantage(results).verdict == "negative"
            how = "was clearly worse" if worse else "showed no clear advantage"
            return (
                f"For an ensemble of {members} set {ens}{other}. Even for a network that works alone {ind} {how} "
                f"on test data: {in_numbers(results)}; {doubt(results)}."
            )
        return f"For an ensemble of {members} set {ens}{other}; {ind} only for a network that works alone."
    if gap.verdict == "negative":
        return (
            f"Set {ind} even for an ensemble of {members}: what looked best for it on validation data ({ens}) was "
            "worse on test data."
        )
    return (
        f"For an ensemble of {members} set {ens} or {ind}, as you like: on test data they could not be told apart"
        f"{'' if math.isnan(gap.sem) else f' ({interval_of(results.objective, gap)})'}."
    )


def _but_by(results: StudyResults, ind: str) -> str:
    """The metrics by which the ensemble is better at the other optimum."""
    against = [metric for metric, gap in results.gap.items() if gap.verdict == "negative"]
    if not against:
        return ""
    names = " and ".join(METRIC_WORDS[metric].name for metric in against)
    how = "objective=" if results.config.get("study") == "tune" else "--objective"
    return f" (by {names} {ind} was better; {how} selects by what you are measured by)"


def _surer_gap(results: StudyResults, gap: Estimate, needed: int | None) -> list[str]:
    if in_words(results.h_ind.setting) == in_words(results.h_ens.setting):
        return []
    pairs, seconds = results.pairs, seconds_per_test_replicate(results)

    def more(count: int) -> str:
        how = f"{_flag(results, 'resume')} {_flag(results, 'test_replicates', count)}"
        return f"({how}, about {_time((count - pairs) * seconds)} more of training)"

    if math.isnan(gap.sem):
        return [f"Test more than one replicate {more(10)}."]
    amount = f"{signed(results.objective, gap.mean)} {unit_of(results.objective)}"
    if gap.verdict != "undecided":
        return [
            f"The gap, {amount}, is clear of 0; an interval half as wide would take {4 * pairs} test replicates "
            f"instead of {pairs} {more(4 * pairs)}."
        ]
    if needed is None:
        return [
            f"More test replicates are not worth it: if the gap is what it seems ({amount}), thousands would not do."
        ]
    return [
        f"If the gap is what it seems ({amount}), {needed} test replicates instead of {pairs} would tell it from 0 "
        f"{more(needed)}."
    ]


def _surer_choice(results: StudyResults, needed: int | None) -> list[str]:
    share, replicates = results.selection.share_both, len(results.h_ind.replicates)
    if math.isnan(share):
        again = f"continue with {_flag(results, 'resume')}" if _takes_more(results) else "search with"
        how = f"{again} {_flag(results, 'replicates', 5)}"
        return [f"With one validation replicate nobody can say how firm the choice is; {how}."]
    if share >= FIRM:
        return [f"The choice is firm: {share:.0%} of resamples of the {replicates} validation replicates repeat it."]
    name, regret = METRIC_WORDS[results.objective].name, mean_regret(results)
    begin = (
        f"The choice is not firm: {share:.0%} of resamples of the {replicates} validation replicates repeat it. What "
        f"they choose for the ensemble is on average {signed(results.objective, regret).lstrip('+')} validation {name} "
        "worse than the best"
    )
    if needed is None:
        return [f"{begin}, and more replicates would hardly help: several settings are as good."]
    how = _more_replicates(results, needed)
    return [
        f"{begin}; if that matters, about {needed} replicates would make it 95% firm ({how} of training, if those to "
        "come are like these)."
    ]


def _more_replicates(results: StudyResults, count: int) -> str:
    """How to have so many validation replicates: a grid takes more, what Optuna was told cannot change."""
    seconds = seconds_per_search_replicate(results)
    if _takes_more(results):
        how = f"{_flag(results, 'resume')} {_flag(results, 'replicates', count)}"
        return f"{how}, about {_time((count - len(results.h_ind.replicates)) * seconds)} more"
    return f"a new search with {_flag(results, 'replicates', count)}, about {_time(count * seconds)}"


def _takes_more(results: StudyResults) -> bool:
    return results.config.get("search") == "grid" and not results.config.get("prune")


def mean_regret(results: StudyResults) -> float:
    """How much worse, by the validation mean, the ensemble settings that resamples choose are than the best."""
    name, chosen = objective_names(results.objective)[1], results.selection.ens
    if math.isnan(chosen.share):
        return math.nan
    best = float(results.trials[chosen.trial].figures[name].mean())
    pairs = zip(chosen.votes, results.trials, strict=True)
    return sum(vote * (float(trial.figures[name].mean()) - best) for vote, trial in pairs if vote > 0)


def _flag(results: StudyResults, name: str, value: int | None = None) -> str:
    """A flag of a study script, or the argument of `ensgap.tune`."""
    if results.config.get("study") == "tune":
        return f"{name}={True if value is None else value}" + ("," if value is None else "")
    return f"--{name.replace('_', '-')}" + ("" if value is None else f" {value}")


def _mixing(greedy: GreedyResults) -> list[str]:
    gain = greedy.gain
    if math.isnan(gain.sem):
        return []
    amount = f"{abs(gain.mean):.4f} validation NLL (95% interval of the difference {gain.low:+.4f} to {gain.high:+.4f})"
    if gain.verdict == "positive":
        return [
            f"Mixing settings pays: members picked greedily from all settings make an ensemble of {greedy.size} that "
            f"is {amount} better than the best single setting."
        ]
    if gain.verdict == "negative":
        return [
            f"Do not mix settings: an ensemble picked greedily from all of them is {amount} worse than the best one."
        ]
    return [
        "Mixing settings is not worth it: an ensemble picked greedily from all of them is no better than the best one."
    ]


def _time(seconds: float) -> str:
    """A time that a person can read."""
    for unit, length in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds"

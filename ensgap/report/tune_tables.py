"""The table of a search's hyperparameters, and what a reader must know of it."""

import re
from collections.abc import Mapping

from ensgap.gap import Estimate
from ensgap.hyperparameters import PER_MEMBER, in_words, short
from ensgap.report.importance import Axis
from ensgap.report.tables import Cell, Column, Table
from ensgap.results.optima import StudyResults

Shares = Mapping[str, Mapping[str, Estimate]]
"""Importances by figure and hyperparameter."""
WHY_FAILED = "Failed (out of memory, or their workers died; --resume tries them again)"
EDGE = 0.02
"""So near to the end of a range, as a share of it, an optimum is at its edge."""


def hyperparameter_table(results: StudyResults, shares: Shares) -> Table:
    """Every hyperparameter: what was tried, what is best for whom, how much it matters."""
    space = results.config.get("space")
    known = space if isinstance(space, Mapping) else {}
    names = dict.fromkeys([*known, *(name for trial in results.trials for name in trial.setting)])
    rows: list[tuple[Cell, ...]] = []
    for name in names:
        best = [short(side.setting[name]) if name in side.setting else "–" for side in (results.h_ind, results.h_ens)]
        matters: list[Cell] = [shares[figure].get(name, "–") for figure in shares]
        inside = "yes" if name in PER_MEMBER else "no"
        rows.append((name.replace("_", " "), str(known.get(name, "by function")), *best, *matters, inside))
    columns = (
        Column("hyperparameter", "Hyperparameter"),
        Column("tried", "Tried"),
        Column("h_ind", "h*_ind"),
        Column("h_ens", "h*_ens"),
        Column("importance_ind", "Importance for the average member (%)", 0, 100.0),
        Column("importance_ens", "Importance for the ensemble (%)", 0, 100.0),
        Column("inside", "May differ inside a stack"),
    )
    caption = (
        "Hyperparameters: what was tried, the two optima as whole settings, and importance: the share of the variance "
        "between settings by fANOVA (Optuna's, 32 trees), mean ± SEM over replicates."
    )
    return Table("hyperparameters", caption, columns, tuple(rows))


def search_notes(results: StudyResults, axes: list[Axis]) -> list[str]:
    """What a reader must know of the search before believing the figures."""
    notes = []
    for status, what in (("diverged", "Diverged"), ("failed", WHY_FAILED)):
        found = [trial.setting for trial in results.trials if trial.status == status]
        if found:
            one = in_words({name: found[0][name] for name in results.hyperparameters if name in found[0]})
            notes.append(
                f"{what}, and so never selected: {len(found)} of {len(results.trials)} settings, such as {one}."
            )
    space = results.config.get("space")
    known = space if isinstance(space, Mapping) else {}
    for axis in axes:
        ends = re.fullmatch(r"(?:log|uniform|integer)\((\S+), (\S+)\)", str(known.get(axis.name, "")))
        if ends is None or axis.words:
            continue
        low, high = (axis.place(float(end)) for end in ends.groups())
        for who, chosen in (("average member", results.h_ind), ("ensemble", results.h_ens)):
            share = (axis.place(chosen.setting[axis.name]) - low) / (high - low)
            if min(share, 1 - share) < EDGE:
                notes.append(
                    f"The best {axis.name.replace('_', ' ')} for the {who}, {short(chosen.setting[axis.name])}, is at "
                    f"the {'lower' if share < 0.5 else 'upper'} end of its range: look further with a wider one."
                )
    return notes

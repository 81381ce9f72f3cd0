"""The tables of a study that looks for both optima, whatever it searches."""

import math

import numpy as np

from ensgap.gap import Estimate
from ensgap.hyperparameters import Setting, short
from ensgap.losses import Loss, objective_names
from ensgap.report.tables import Cell, Column, Table, bold_of
from ensgap.report.words import METRIC_WORDS, averaged, metric_column
from ensgap.results.optima import StudyResults

LEVELS = {"ensemble": "ensemble", "avg_member": "average member"}
ORDER: dict[Loss, tuple[str, ...]] = {
    "classification": ("error", "nll", "ece", "brier"),
    "regression": ("rmse", "nll", "coverage"),
}
"""Of columns; as in the paper's tables, and what it does not have at the end."""


def metric_columns(results: StudyResults) -> tuple[Column, ...]:
    """The columns of its metrics."""
    return tuple(metric_column(metric) for metric in ORDER[results.loss])


def _figures(results: StudyResults) -> list[str]:
    """All figures of a setting."""
    names = [f"{level}_{name}" for level in ("avg_member", "ensemble") for name in (*results.metrics, "entropy")]
    return [*names, "diversity", "ambiguity"] + ["brier_ambiguity"] * ("brier" in results.metrics)


def report_tables(results: StudyResults) -> list[Table]:
    """All tables of the report, in reading order."""
    further = [_further(results)] if results.further else []
    return [_test(results), _gap(results), *further, _validation(results), _sizes(results), _cost(results)]


def setting_columns(results: StudyResults) -> tuple[Column, ...]:
    """A column for each hyperparameter that differs between settings."""
    return tuple(Column(name, name.replace("_", " ").capitalize()) for name in results.hyperparameters)


def setting_cells(results: StudyResults, setting: Setting) -> tuple[str, ...]:
    """What stands in these columns; a setting may lack what depends on other values."""
    return tuple(short(setting[name]) if name in setting else "–" for name in results.hyperparameters)


def trials_table(results: StudyResults) -> Table:
    """Every setting the search tried with all its validation figures, for trials.csv."""
    figures = _figures(results)
    names = (*results.hyperparameters, "status", "replicates", *figures)
    rows: list[tuple[Cell, ...]] = []
    for trial in results.trials:
        known = [Estimate.of(trial.figures[name]) if name in trial.figures else "" for name in figures]
        values = [trial.setting.get(name, "") for name in results.hyperparameters]
        raw = [value if isinstance(value, float) else str(value) for value in values]
        rows.append((*raw, trial.status, str(len(trial.replicates)), *known))
    return Table("trials", "Settings tried", tuple(Column(name, name) for name in names), tuple(rows))


def _test(results: StudyResults) -> Table:
    sides = {"ind": "average member (h*_ind)", "ens": "ensemble (h*_ens)"}
    if results.h_ind.setting == results.h_ens.setting:
        sides = {"ens": "both (h*_ind = h*_ens)"}
    columns = metric_columns(results)
    rows: list[tuple[Cell, ...]] = []
    bold = set()
    for level, level_title in LEVELS.items():
        first = len(rows)
        estimates = {c.key: [results.test[side].estimate(f"{level}_{c.key}") for side in sides] for c in columns}
        for i, (side, title) in enumerate(sides.items()):
            setting = setting_cells(results, results.test[side].setting)
            rows.append((level_title, title, *setting, *(estimates[c.key][i] for c in columns)))
        bold |= {(first + i, key) for key, values in estimates.items() for i, b in enumerate(bold_of(values)) if b}
    first_columns = (
        Column("level", "Figures of"),
        Column("selected_by", "Setting best for"),
        *setting_columns(results),
    )
    counts = [len(results.test[side].replicates) for side in sides]
    caption = (
        f"Test data: ensembles retrained on the whole pool, {averaged(*counts)}."
        f"{' Bold: within 1.96 SEM of the best of its level.' if bold else ''}"
    )
    return Table("test", caption, (*first_columns, *columns), tuple(rows), frozenset(bold))


def _further(results: StudyResults) -> Table:
    columns = metric_columns(results)
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (title, *setting_cells(results, tested.setting), *(tested.estimate(f"{level}_{c.key}") for c in columns))
        for level, title in LEVELS.items()
        for tested in results.further
    )
    counts = [len(tested.replicates) for tested in results.further]
    caption = f"Further settings on test data, retrained like both optima: {averaged(*counts)}."
    return Table("further", caption, (Column("level", "Figures of"), *setting_columns(results), *columns), rows)


def _gap(results: StudyResults) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for metric, e in results.gap.items():
        title, scale = METRIC_WORDS[metric].gap, METRIC_WORDS[metric].scale
        rows.append((title, *(_signed(v * scale) for v in (e.mean, e.sem, e.low, e.high)), e.verdict))
    columns = tuple(
        Column(key, title)
        for key, title in (
            ("metric", "Metric"),
            ("gap", "Gap"),
            ("sem", "SEM"),
            ("ci95_low", "95% from"),
            ("ci95_high", "to"),
            ("verdict", "Verdict"),
        )
    )
    caption = (
        "Optimality gap: test loss of the ensemble at h*_ind minus at h*_ens, paired by replicate. "
        "Positive: tuning for the ensemble paid off."
    )
    return Table("gap", caption, columns, tuple(rows))


def _signed(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:+.5f}"


def _validation(results: StudyResults) -> Table:
    objective, words = results.objective, METRIC_WORDS[results.objective]
    ambiguity = "brier_ambiguity" if objective == "brier" else "ambiguity"
    ind, ens = objective_names(objective)
    names = (ind, ens, ambiguity, "diversity")
    rows: list[tuple[Cell, ...]] = []
    selection = results.selection
    for i, trial in enumerate(results.trials):
        figures: list[Cell] = [trial.estimate(name) for name in names] if trial.usable else [trial.status] * len(names)
        rows.append((*setting_cells(results, trial.setting), *figures, selection.ind.votes[i], selection.ens.votes[i]))
    bold = {(selection.ind.trial, ind), (selection.ens.trial, ens)}
    columns = (
        *setting_columns(results),
        Column(ind, f"Average-member {words.title}", words.digits, words.scale),
        Column(ens, f"Ensemble {words.title}", words.digits, words.scale),
        Column(ambiguity, "Ambiguity" if objective in ("nll", "brier") else "Ambiguity of NLL"),
        Column("diversity", "Diversity"),
        Column("votes_ind", "Chosen as h*_ind (%)", 0, 100.0),
        Column("votes_ens", "Chosen as h*_ens (%)", 0, 100.0),
    )
    replicates = len(results.h_ind.replicates)
    more = " (their splits differ, so most of the SEM is common to all settings)" if replicates > 1 else ""
    chosen = " Chosen: in how many percent of resamples of the replicates." if replicates > 1 else ""
    caption = f"Validation data: every setting tried, {averaged(replicates)}{more}. Bold: the two optima.{chosen}"
    return Table("validation", caption, columns, tuple(rows), frozenset(bold))


def _sizes(results: StudyResults) -> Table:
    usable = [trial for trial in results.trials if trial.usable]
    means = np.stack([trial.curves[results.objective].mean(1) for trial in usable])  # [settings, sizes]
    rows: list[tuple[Cell, ...]] = []
    for size, best in enumerate(means.argmin(0), start=1):
        curves = usable[best].curves
        cells = [Estimate.of(curves[c.key][size - 1]) for c in metric_columns(results)]
        rows.append((str(size), *setting_cells(results, usable[best].setting), *cells))
    best_of = (Column(c.key, f"Best {c.title.lower()}") for c in setting_columns(results))
    columns = (Column("size", "Ensemble size"), *best_of, *metric_columns(results))
    caption = (
        f"The best setting for every ensemble size, by validation {METRIC_WORDS[results.objective].name}, averaged "
        "over sub-ensembles of the members."
    )
    return Table("ensemble_size", caption, columns, tuple(rows))


def _cost(results: StudyResults) -> Table:
    seconds = results.cost()
    titles = {
        "search_seconds": "one search, both optima",
        "two_searches_seconds": "the same as two separate searches",
        "test_seconds": "retraining and test",
        "wall_seconds": "the whole study on the clock (without runs that were killed)",
    }
    rows = tuple((title, seconds[key]) for key, title in titles.items())
    columns = (Column("what", "What"), Column("seconds", "Seconds", 1))
    return Table("cost", "What it cost: seconds of training, summed over trials, and on the clock.", columns, rows)

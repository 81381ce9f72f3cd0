"""The report of a search over any space: its answer in words, and in JSON."""

import math
from typing import Any

from ensgap.folder import StudyFolder
from ensgap.hyperparameters import Setting, in_words
from ensgap.losses import objective_names
from ensgap.report.alone import alone_note
from ensgap.report.extras import read_extras
from ensgap.report.importance import axes_of, importances
from ensgap.report.report import Card, Report, data_notes, facts, json_estimate, json_number, summary_head
from ensgap.report.tested_figures import drawn_tests
from ensgap.report.tune_figures import tune_figures
from ensgap.report.tune_tables import hyperparameter_table, search_notes
from ensgap.report.weight_decay import chosen_by, cost_of_the_wrong_one, stability, test_notes
from ensgap.report.weight_decay_tables import report_tables, trials_table
from ensgap.report.words import interval_of, signed, unit_of
from ensgap.results.optima import SettingFigures, StudyResults, read_results


def tune_report(folder: StudyFolder) -> Report:
    """Everything about it, recomputed from the saved predictions."""
    results = read_results(folder)
    extras, objective = read_extras(folder, results), results.objective
    axes, tables = axes_of(results), report_tables(results)
    shares = {figure: importances(results, axes, figure) for figure in objective_names(objective)}
    gap = results.gap[objective]
    interval = "" if math.isnan(gap.sem) else interval_of(objective, gap)
    names = ("task", "members", "replicates", "test_replicates", "epochs", "train_fraction", "val_fraction")
    return Report(
        title=f"Hyperparameters of a deep ensemble on {results.config['task']}",
        headline=headline(results),
        notes=[*alone_note(results), *data_notes(results.study), *search_notes(results, axes), *test_notes(results)],
        cards=(
            Card("best for the average member", in_words(varying(results, results.h_ind.setting)), "h*_ind", "ind"),
            Card("best for the ensemble", in_words(varying(results, results.h_ens.setting)), "h*_ens", "ens"),
            Card(f"optimality gap, {unit_of(objective)}", signed(objective, gap.mean), interval),
        ),
        tables=[tables[0], tables[1], hyperparameter_table(results, shares), *tables[2:]],
        figures=[*tune_figures(results, axes, shares), *drawn_tests(results), *extras.figures],
        appendix=extras.tables,
        advice=extras.advice,
        facts=[*facts(results.study, (*names, "holdout", "search", "seed")), *_computed(results)],
        command=str(results.study["command"]),
        summary=_summary(results) | extras.summary,
        files={"trials.csv": trials_table(results).csv()},
    )


def _computed(results: StudyResults) -> list[tuple[str, str]]:
    """How the members of somebody's own network were computed."""
    if "way" not in results.study:
        return []
    return [("members computed by", f"{results.study['way']} ({results.study['why']})")]


def varying(results: StudyResults, setting: Setting) -> Setting:
    """What of a setting is not the same in all that were tried."""
    return {name: setting[name] for name in results.hyperparameters if name in setting}


def headline(results: StudyResults) -> str:
    """The answer in three sentences."""
    ind, ens = (in_words(varying(results, side.setting)) for side in (results.h_ind, results.h_ens))
    members, task = results.config["members"], results.config["task"]
    if results.h_ind.setting == results.h_ens.setting:
        return (
            f"On {task}, {ind} is best for the average member and for the ensemble of {members} alike"
            f"{chosen_by(results)}, of {len(results.trials)} settings tried. The optimality gap is 0: tuning one "
            f"network found the ensemble's optimum too. {stability(results)}"
        )
    return (
        f"On {task}, {ind} is best for the average member and {ens} for the ensemble of {members}"
        f"{chosen_by(results)}, of {len(results.trials)} settings tried. {cost_of_the_wrong_one(results)} "
        f"{stability(results)}"
    )


def _summary(results: StudyResults) -> dict[str, Any]:
    """The content of summary.json."""
    selection = results.selection
    return summary_head(results.study, headline(results)) | {
        "test_replicates": results.pairs,
        "settings_tried": len(results.trials),
        "diverged": [dict(trial.setting) for trial in results.trials if trial.diverged],
        "failed": [dict(trial.setting) for trial in results.trials if trial.failed],
        "pruned": [dict(trial.setting) for trial in results.trials if trial.status == "pruned"],
        "h_ind": dict(results.h_ind.setting),
        "h_ens": dict(results.h_ens.setting),
        "selection": {
            "share_ind": json_number(selection.ind.share),
            "share_ens": json_number(selection.ens.share),
            "share_both": json_number(selection.share_both),
        },
        "gap": {metric: json_estimate(estimate, interval=True) for metric, estimate in results.gap.items()},
        "test": {name: _figures(tested) for name, tested in results.test.items()},
        "validation": {"ind": _figures(results.h_ind), "ens": _figures(results.h_ens)},
        "cost": results.cost(),
    }


def _figures(setting: SettingFigures) -> dict[str, Any]:
    return {name: json_estimate(setting.estimate(name), interval=False) for name in setting.figures}

"""The report of a search over any space: its answer in words, and in JSON."""

import math
from typing import Any

from ensgap.folder import StudyFolder
from ensgap.hyperparameters import Setting, in_words
from ensgap.report.extras import read_extras
from ensgap.report.report import Card, Report, data_notes, facts, json_estimate, json_number, summary_head
from ensgap.report.weight_decay import chosen_by, cost_of_the_wrong_one, stability
from ensgap.report.words import interval_of, signed, unit_of
from ensgap.results.optima import SettingFigures, StudyResults, read_results


def tune_report(folder: StudyFolder) -> Report:
    """Everything about it, recomputed from the saved predictions."""
    results = read_results(folder)
    extras, objective = read_extras(folder, results), results.objective
    gap = results.gap[objective]
    interval = "" if math.isnan(gap.sem) else interval_of(objective, gap)
    names = ("task", "members", "replicates", "test_replicates", "epochs", "train_fraction", "val_fraction")
    return Report(
        title=f"Hyperparameters of a deep ensemble on {results.config['task']}",
        headline=headline(results),
        notes=[*data_notes(results.study), *_unusable(results)],
        cards=(
            Card("best for the average member", in_words(varying(results, results.h_ind.setting)), "h*_ind", "ind"),
            Card("best for the ensemble", in_words(varying(results, results.h_ens.setting)), "h*_ens", "ens"),
            Card(f"optimality gap, {unit_of(objective)}", signed(objective, gap.mean), interval),
        ),
        tables=(),
        figures=extras.figures,
        appendix=extras.tables,
        advice=extras.advice,
        facts=facts(results.study, (*names, "holdout", "search", "seed")),
        command=str(results.study["command"]),
        summary=_summary(results) | extras.summary,
    )


def varying(results: StudyResults, setting: Setting) -> Setting:
    """What of a setting is not the same in all that were tried."""

    def same(name: str) -> bool:
        return all(trial.setting.get(name) == setting[name] for trial in results.trials)

    return {name: value for name, value in setting.items() if not same(name)} or setting


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


def _unusable(results: StudyResults) -> list[str]:
    """Which settings could not be selected, and why."""
    whys = {
        "diverged": "Diverged",
        "failed": "Failed (out of memory, or their workers died; --resume tries them again)",
    }
    return [
        f"{why}, and so never selected: {'; '.join(in_words(t.setting) for t in results.trials if t.status == status)}."
        for status, why in whys.items()
        if any(t.status == status for t in results.trials)
    ]


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

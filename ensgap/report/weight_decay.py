"""The report of a weight-decay study: its answer in words, and in JSON."""

import math
from typing import Any

from ensgap.folder import StudyFolder
from ensgap.report.alone import alone_note
from ensgap.report.extras import read_extras
from ensgap.report.paper_cells import paper_cards, paper_summary, paper_tables
from ensgap.report.report import Card, Report, data_notes, facts, json_estimate, json_number
from ensgap.report.style import number
from ensgap.report.weight_decay_figures import draw_figures
from ensgap.report.weight_decay_paper import EQUAL, HEADS, equal_cells, paper_cells
from ensgap.report.weight_decay_tables import report_tables, trials_table
from ensgap.report.words import METRIC_WORDS, interval_of, signed, unit_of
from ensgap.results.optima import SettingFigures, StudyResults, read_results


def weight_decay_report(folder: StudyFolder) -> Report:
    """Everything about it, recomputed from the saved predictions."""
    results = read_results(folder)
    extras = read_extras(folder, results)
    objective = results.objective
    gap = results.gap[objective]
    interval = "" if math.isnan(gap.sem) else interval_of(objective, gap)
    names = ["task", "members", "replicates", "test_replicates", "epochs", "lr", "train_fraction", "val_fraction"]
    beside, equal = paper_cells(results), equal_cells(results)
    names += ["holdout", "search", "seed"] + ["objective"] * ("objective" in results.config)
    return Report(
        title=f"Weight decay of a deep ensemble on {results.config['task']}",
        headline=headline(results),
        notes=[*alone_note(results), *_notes(results)],
        cards=(
            Card("best for the average member", number(results.h_ind.weight_decay), "weight decay, h*_ind", "ind"),
            Card("best for the ensemble", number(results.h_ens.weight_decay), "weight decay, h*_ens", "ens"),
            Card(f"optimality gap, {unit_of(objective)}", signed(objective, gap.mean), interval),
            *paper_cards(beside),
        ),
        tables=[
            *report_tables(results),
            *paper_tables(beside, HEADS),
            *paper_tables(equal, HEADS, EQUAL, "At the paper's own weight decays"),
        ],
        appendix=extras.tables,
        figures=[*draw_figures(results), *extras.figures],
        advice=extras.advice,
        facts=facts(results.study, names),
        command=str(results.study["command"]),
        summary=_summary(results) | extras.summary | paper_summary(beside) | paper_summary(equal, EQUAL),
        files={"trials.csv": trials_table(results).csv()},
    )


def headline(results: StudyResults) -> str:
    """The answer in three sentences."""
    ind, ens = results.h_ind.weight_decay, results.h_ens.weight_decay
    members, task = results.config["members"], results.config["task"]
    if ind == ens:
        return (
            f"On {task}, weight decay {number(ind)} is best for the average member and for the ensemble of {members} "
            f"alike{chosen_by(results)}. The optimality gap is 0: tuning one network found the ensemble's optimum too. "
            f"{stability(results)}"
        )
    return (
        f"On {task}, weight decay {number(ind)} is best for the average member and {number(ens)} for the ensemble of "
        f"{members}{chosen_by(results)}. {cost_of_the_wrong_one(results)} {stability(results)}"
    )


def chosen_by(results: StudyResults) -> str:
    """How the optima were chosen, where it is not the usual way."""
    return "" if results.objective == "nll" else f" (by validation {METRIC_WORDS[results.objective].name})"


def cost_of_the_wrong_one(results: StudyResults) -> str:
    """The gap in a sentence."""
    objective = results.objective
    gap = results.gap[objective]
    amount = f"{signed(objective, gap.mean)} {unit_of(objective)}"
    if math.isnan(gap.sem):
        return f"The optimality gap is {amount} on one replicate, which is no basis for a verdict."
    interval = f"{amount} ({interval_of(objective, gap)}, {results.pairs} paired replicates)"
    if gap.verdict == "positive":
        return f"Copying the single network's optimum costs the ensemble {interval}."
    if gap.verdict == "negative":
        return f"Tuning for the ensemble did not pay off here: the optimality gap is {interval}."
    return f"The optimality gap is {interval}: not distinguishable from 0."


def stability(results: StudyResults) -> str:
    """How firm the selection is."""
    s = results.selection
    if math.isnan(s.share_both):
        return "With one replicate there is no telling how firm that selection is."
    firm = "firm" if s.share_both >= 0.95 else "noisy"
    return (
        f"The selection is {firm}: resampling the {len(results.h_ind.replicates)} validation replicates chooses the "
        f"same setting for the average member {s.ind.share:.0%} of the time, for the ensemble {s.ens.share:.0%}, "
        f"both {s.share_both:.0%}."
    )


def _summary(results: StudyResults) -> dict[str, Any]:
    """The content of summary.json; a number that one replicate cannot give is null."""
    config = results.config
    return {
        "study": config["study"],
        "task": config["task"],
        "headline": headline(results),
        "members": config["members"],
        "replicates": config["replicates"],
        "test_replicates": results.pairs,
        "search": config["search"],
        "objective": results.objective,
        "settings_tried": len(results.trials),
        "diverged": [dict(trial.setting) for trial in results.trials if trial.diverged],
        "pruned": [dict(trial.setting) for trial in results.trials if trial.status == "pruned"],
        "failed": [dict(trial.setting) for trial in results.trials if trial.failed],
        "h_ind": dict(results.h_ind.setting),
        "h_ens": dict(results.h_ens.setting),
        "selection": {
            "share_ind": json_number(results.selection.ind.share),
            "share_ens": json_number(results.selection.ens.share),
            "share_both": json_number(results.selection.share_both),
        },
        "gap": {metric: json_estimate(estimate, interval=True) for metric, estimate in results.gap.items()},
        "test": {name: _figures(tested) for name, tested in results.test.items()},
        "further": [{"setting": dict(t.setting), "test": _figures(t)} for t in results.further],
        "validation": {"ind": _figures(results.h_ind), "ens": _figures(results.h_ens)},
        "cost": results.cost(),
        "seconds": results.study["seconds"],
        "config": dict(config),
        "versions": results.study["versions"],
        "command": results.study["command"],
    }


def _figures(setting: SettingFigures) -> dict[str, Any]:
    return {name: json_estimate(setting.estimate(name), interval=False) for name in setting.figures}


def _notes(results: StudyResults) -> list[str]:
    """What a reader must know before believing the figures."""
    notes = data_notes(results.study)
    diverged = [number(trial.weight_decay) for trial in results.trials if trial.diverged]
    if diverged:
        notes.append(f"Diverged, and so never selected: weight decay {', '.join(diverged)}.")
    pruned = [number(trial.weight_decay) for trial in results.trials if trial.status == "pruned"]
    if pruned:
        notes.append(
            f"Pruned, because others were clearly better for the average member and for the ensemble: weight decay "
            f"{', '.join(pruned)}."
        )
    failed = [number(trial.weight_decay) for trial in results.trials if trial.failed]
    if failed:
        notes.append(
            f"Failed (out of memory, or their workers died), and so never selected: weight decay {', '.join(failed)}; "
            "--resume tries them again."
        )
    notes += test_notes(results)
    edge = max(trial.weight_decay for trial in results.trials)  # the other edge, 0, is the end of the road
    for name, chosen in (("average member", results.h_ind), ("ensemble", results.h_ens)):
        if chosen.weight_decay == edge:
            notes.append(
                f"The best weight decay for the {name}, {number(chosen.weight_decay)}, is the largest that was tried: "
                "look further with a wider --grid."
            )
    return notes


def test_notes(results: StudyResults) -> list[str]:
    """What a reader must know of the test."""
    if not all(tested.usable for tested in results.test.values()):
        return ["Some retrained ensembles diverged or failed; the gap is over the replicates that both optima have."]
    asked = int(str(results.config["test_replicates"]))
    if results.pairs < asked:
        return [f"Unfinished: {results.pairs} of {asked} test replicates are there; continue with --resume."]
    return []

"""A study in words and in JSON."""

import math
from typing import Any

from ensgap.gap import Estimate
from ensgap.results import SettingFigures, StudyResults


def number(value: float) -> str:
    """A setting's value, short: 0, 0.003, 1e-05."""
    return f"{value:.4g}"


def headline(results: StudyResults) -> str:
    """The answer in three sentences."""
    ind, ens = results.h_ind.weight_decay, results.h_ens.weight_decay
    members, task = results.config["members"], results.config["task"]
    if ind == ens:
        return (
            f"On {task}, weight decay {number(ind)} is best for the average member and for the ensemble of {members} "
            f"alike. The optimality gap is 0: tuning one network found the ensemble's optimum too. {stability(results)}"
        )
    return (
        f"On {task}, weight decay {number(ind)} is best for the average member and {number(ens)} for the ensemble of "
        f"{members}. {_cost_of_the_wrong_one(results.gap['nll'], results)} {stability(results)}"
    )


def _cost_of_the_wrong_one(gap: Estimate, results: StudyResults) -> str:
    if math.isnan(gap.sem):
        return f"The optimality gap is {gap.mean:+.4f} test NLL on one replicate, which is no basis for a verdict."
    interval = (
        f"{gap.mean:+.4f} test NLL (95% interval {gap.low:+.4f} to {gap.high:+.4f}, {results.pairs} paired replicates)"
    )
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


def cost(results: StudyResults) -> dict[str, float]:
    """Seconds of training, and what two separate searches would have taken."""
    search = sum(trial.seconds for trial in results.trials)
    tested = {t.weight_decay: t.seconds for t in results.test.values()}
    return {
        "search_seconds": search,
        "two_searches_seconds": 2 * search,
        "test_seconds": sum(tested.values()),
        "wall_seconds": float(str(results.study["seconds"])),
    }


def summary(results: StudyResults) -> dict[str, Any]:
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
        "settings_tried": len(results.trials),
        "diverged": [dict(trial.setting) for trial in results.trials if trial.diverged],
        "h_ind": dict(results.h_ind.setting),
        "h_ens": dict(results.h_ens.setting),
        "selection": {
            "share_ind": _json(results.selection.ind.share),
            "share_ens": _json(results.selection.ens.share),
            "share_both": _json(results.selection.share_both),
        },
        "gap": {metric: _estimate(estimate, interval=True) for metric, estimate in results.gap.items()},
        "test": {name: _figures(tested) for name, tested in results.test.items()},
        "validation": {"ind": _figures(results.h_ind), "ens": _figures(results.h_ens)},
        "cost": cost(results),
        "seconds": results.study["seconds"],
        "config": dict(config),
        "versions": results.study["versions"],
        "command": results.study["command"],
    }


def _figures(setting: SettingFigures) -> dict[str, Any]:
    return {name: _estimate(setting.estimate(name), interval=False) for name in setting.figures}


def _estimate(estimate: Estimate, interval: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"mean": _json(estimate.mean), "sem": _json(estimate.sem)}
    return found | ({"ci95": [_json(estimate.low), _json(estimate.high)]} if interval else {})


def _json(value: float) -> float | None:
    return value if math.isfinite(value) else None

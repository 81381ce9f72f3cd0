"""Greedy selection across settings in a report: its tables, its figure, and its figures for summary.json."""

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ensgap.gap import Estimate
from ensgap.hyperparameters import in_words
from ensgap.report.report import NamedFigure, json_estimate
from ensgap.report.style import COLORS, STYLE, legend_above
from ensgap.report.tables import Cell, Column, Table, bold_of
from ensgap.report.weight_decay_figures import within_replicate_sem
from ensgap.report.words import averaged
from ensgap.results.greedy import GreedyResults

TITLES = {
    "ind": "best setting for the average member",
    "ens": "best setting for the ensemble",
    "greedy": "greedy, across settings",
}
AGAINST = "NLL against the best setting for the ensemble, paired"
SHOWN = 12
"""Settings in the figure and the table, those with the most members."""
HONEST = (
    "All are chosen by NLL at one half of the validation points and measured at the other half, both ways round: these "
    "members were trained in the search and never meet the test data."
)


def greedy_tables(greedy: GreedyResults, columns: Sequence[Column]) -> list[Table]:
    """The comparison at equal size, and what the greedy ensembles are made of."""
    estimates = {c.key: [Estimate.of(v[f"ensemble_{c.key}"]) for v in greedy.figures.values()] for c in columns}
    rows: list[tuple[Cell, ...]] = []
    for i, way in enumerate(greedy.figures):
        figures = greedy.figures[way]
        paired: Cell = Estimate.of(figures["ensemble_nll"] - greedy.figures["ens"]["ensemble_nll"])
        own = (Estimate.of(figures["ambiguity"]), "–" if way == "ens" else paired)
        rows.append((TITLES[way], *(estimates[c.key][i] for c in columns), *own))
    bold = {(i, key) for key, found in estimates.items() for i, best in enumerate(bold_of(found)) if best}
    comparison = Table(
        "greedy",
        f"Ensembles of {greedy.size} from what the search trained, {averaged(len(greedy.replicates))}. "
        f"Greedy: members of any setting, each time the one that helps most. {HONEST}",
        (Column("ensemble", "Ensemble"), *columns, Column("ambiguity", "Ambiguity"), Column("nll_difference", AGAINST)),
        tuple(rows),
        frozenset(bold),
    )
    made_of = Table(
        "greedy_settings",
        "Where the members of the greedy ensembles come from, chosen at all validation points, in percent; the mean "
        "over replicates.",
        (Column("setting", "Setting"), Column("share", "Members (%)", 0, 100.0)),
        tuple((in_words(greedy.settings[i]), float(greedy.shares[i])) for i in _most(greedy)),
    )
    return [comparison, made_of]


def greedy_figure(greedy: GreedyResults) -> NamedFigure:
    """NLL against size, and where the members come from."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9.0, 3.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        _sizes(left, greedy)
        _origins(right, greedy)
        handles, names = left.get_legend_handles_labels()
        legend_above(figure, handles, names, 3)
    return NamedFigure(
        "greedy",
        f"Greedy selection across settings. Left: validation NLL against the size of the ensemble (bars: ± SEM, "
        f"after taking out what a replicate's split does to all three alike). {HONEST} "
        "Right: where the members of the greedy ensembles come from.",
        figure,
    )


def greedy_summary(greedy: GreedyResults) -> dict[str, Any]:
    """For summary.json."""
    return {
        "size": greedy.size,
        "replicates": len(greedy.replicates),
        "validation": {
            way: {name: json_estimate(Estimate.of(values), interval=False) for name, values in figures.items()}
            for way, figures in greedy.figures.items()
        },
        "nll_below_ens": json_estimate(greedy.gain, interval=True),
        "settings": [
            {"setting": dict(greedy.settings[i]), "share": float(greedy.shares[i])}
            for i in _most(greedy, len(greedy.shares))
        ],
    }


def _most(greedy: GreedyResults, count: int = SHOWN) -> list[int]:
    """The settings that give members, those with the most first."""
    order = np.argsort(-greedy.shares, kind="stable")[:count]
    return [int(i) for i in order if greedy.shares[i] > 0]


def _sizes(axes: Axes, greedy: GreedyResults) -> None:
    looks = {"ind": "--v", "ens": "-^", "greedy": "-.o"}
    curves = np.stack([greedy.curves[way] for way in looks])  # [ways, sizes, replicates]
    sem = np.stack([within_replicate_sem(curves[:, i]) for i in range(greedy.size)], axis=1)
    for place, (way, style) in enumerate(looks.items()):
        x = np.arange(1, greedy.size + 1) + 0.25 * (place - 1)  # side by side, not on top of each other
        look: dict[str, Any] = {"color": COLORS[way], "capsize": 2, "markersize": 5, "label": TITLES[way]}
        axes.errorbar(x, curves[place].mean(-1), yerr=sem[place], fmt=style, **look)
    axes.set_xlabel("Ensemble size (members)")
    axes.set_ylabel("Validation NLL (nats)")
    step = -(-greedy.size // 8)
    axes.set_xticks(range(step, greedy.size + 1, step))


def _origins(axes: Axes, greedy: GreedyResults) -> None:
    most = _most(greedy)
    names = [in_words(greedy.settings[i]) for i in most]
    axes.barh(range(len(most)), [100 * greedy.shares[i] for i in most], color=COLORS["greedy"])
    axes.set_yticks(range(len(most)), [name if len(name) < 40 else name[:38] + "…" for name in names], fontsize=8)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("Members of the greedy ensemble (%)")

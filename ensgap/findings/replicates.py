"""How many replicates the choice of h*_ind and h*_ens needs, from subsamples of a search that has many.

r replicates are drawn without replacement, both settings are chosen from them, and compared with the choice of all
replicates; what the choice costs is measured on the replicates that were not drawn. Up to half of the replicates are
drawn: with more, agreement with all of them says little.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ensgap.findings.searches import Search, find_searches, missing
from ensgap.findings.section import Section
from ensgap.findings.tables import write_table
from ensgap.findings.words import ENS_MATH, IND_MATH
from ensgap.gap import Array, Estimate
from ensgap.report.style import ENS, IND, STYLE, number, save
from ensgap.report.tables import Cell, Column, Table

COUNTS = (1, 2, 3, 5, 8, 12, 15, 20, 30)
DRAWS = 2000
GROUPS = 10
"""Of replicates that the jackknife leaves out in turn."""
FEWEST = 4
"""Replicates that a search must have to be looked at."""
AGREEMENT, SIGN, REGRET = 0.9, 0.95, 0.01
"""When a choice counts as trustworthy: the share of draws that choose the same; the share that order the two settings
the same way; the mean loss by another choice, as a share of the ensemble's NLL."""
NAME = "replicates_needed"
CAPTION = (
    "What r replicates choose, against all of them. Above: the share of draws that choose the same setting, and that "
    f"order the two settings alike; the line marks {AGREEMENT:.0%}. Below: what the choice costs on the replicates not "
    f"drawn; the line marks {REGRET:.0%}. Bars: ± jackknife error over replicates."
)
FIGURES = ("ind", "ens", "both", "sign", "regret_ind", "regret_ens")
"""Shares of draws that choose the same h*_ind, the same h*_ens, both, and the same order of the two; then the mean loss
of what is chosen, out of sample: of the average member at h*_ind, of the ensemble at h*_ens."""


@dataclass(frozen=True)
class ReplicateResults:
    """What r replicates give, for every r."""

    task: str
    name: str
    replicates: int
    h_ind: float
    h_ens: float
    nll: float  # of the ensemble at h*_ens, mean over all replicates
    by_count: dict[int, dict[str, Estimate]]

    def needed(self, figure: str) -> int | None:
        """The smallest r from which on the threshold is met, None if more are needed than can be told."""
        limit = {"ind": AGREEMENT, "ens": AGREEMENT, "both": AGREEMENT, "sign": SIGN}.get(figure, REGRET * self.nll)
        found = None
        for count, figures in reversed(self.by_count.items()):
            mean = figures[figure].mean
            if not (mean <= limit if figure.startswith("regret") else mean >= limit):
                break
            found = count
        return found


def subsample(avg_member: Array, ensemble: Array) -> dict[int, dict[str, Estimate]]:
    """Every figure for every r, from validation NLLs [settings, replicates], with a grouped jackknife's error."""
    total = avg_member.shape[1]
    target = int(avg_member.mean(1).argmin()), int(ensemble.mean(1).argmin())
    groups = [np.arange(total)[i::GROUPS] for i in range(min(GROUPS, total))]
    found = {}
    for count in (count for count in COUNTS if 2 * count <= total):
        whole = _figures(avg_member, ensemble, target, count)
        left = [np.delete(np.arange(total), own) for own in groups]
        usable = [keep for keep in left if len(keep) > count]
        parts = np.array([_figures(avg_member[:, keep], ensemble[:, keep], target, count) for keep in usable])
        spread = np.square(parts - parts.mean(0)).sum(0)
        sem = np.sqrt((len(parts) - 1) / len(parts) * spread)
        found[count] = {
            name: Estimate(mean, error, *_interval(name, mean, error))
            for name, mean, error in zip(FIGURES, whole.tolist(), sem.tolist(), strict=True)
        }
    return found


def _interval(name: str, mean: float, sem: float) -> tuple[float, float]:
    """95%, and shares within 0…1."""
    low, high = mean - 1.96 * sem, mean + 1.96 * sem
    return (low, high) if name.startswith("regret") else (max(0.0, low), min(1.0, high))


def _figures(avg_member: Array, ensemble: Array, target: tuple[int, int], count: int) -> Array:  # -> [FIGURES]
    total = avg_member.shape[1]
    ranks = np.random.default_rng(0).random((DRAWS, total)).argsort(1).argsort(1)
    drawn = ranks < count  # [draws, replicates]
    ind, ens = ((drawn @ table.T).argmin(1) for table in (avg_member, ensemble))
    regrets = []
    for table, chosen, best in ((avg_member, ind, target[0]), (ensemble, ens, target[1])):
        lost = table[chosen] - table[best]  # [draws, replicates]
        regrets.append((lost * ~drawn).sum(1).mean() / (total - count))
    same_ind, same_ens = ind == target[0], ens == target[1]
    sign = np.sign(ens - ind) == np.sign(target[1] - target[0])  # settings are in order
    return np.array([same_ind.mean(), same_ens.mean(), (same_ind & same_ens).mean(), sign.mean(), *regrets])


def read_replicates(search: Search) -> ReplicateResults:
    """From a search with a shared holdout."""
    avg_member, ensemble = search.nll(search.replicates)
    best = int(ensemble.mean(1).argmin())
    return ReplicateResults(
        task=search.task,
        name=search.name,
        replicates=len(search.replicates),
        h_ind=search.weight_decays[int(avg_member.mean(1).argmin())],
        h_ens=search.weight_decays[best],
        nll=float(ensemble[best].mean()),
        by_count=subsample(avg_member, ensemble),
    )


def section(published: Path, figures: Path) -> Section | None:
    """Replicates needed: of each task, the search with the most replicates."""
    most: dict[str, Search] = {}
    for search in find_searches(published):
        known = most.get(search.task)
        enough = search.order == search.members > 1 and len(search.replicates) >= FEWEST
        if enough and (known is None or len(search.replicates) > len(known.replicates)):
            most[search.task] = search
    results = [read_replicates(search) for search in most.values()]
    if not results:
        return None
    save(draw(results), figures, NAME, ("png",))
    parts = [*map(sentence, results), *missing(most, f"a search with {FEWEST} or more replicates")]
    text = "\n\n".join([*parts, write_table(replicate_table(results), figures, "Table: choices from r replicates")])
    said = conclusion(results)
    title = "How many replicates does the choice need?"
    return Section(title, f"{said[0].upper()}{said[1:]}.", said, text, figures / f"{NAME}.png", CAPTION)


def sentence(result: ReplicateResults) -> str:
    """What a search says, in words."""
    most = max(result.by_count)
    wanted = {
        "ind": f"the same h\\*_ind in {AGREEMENT:.0%} of draws",
        "ens": f"the same h\\*_ens in {AGREEMENT:.0%}",
        "both": f"both in {AGREEMENT:.0%}",
        "sign": f"the same order of the two in {SIGN:.0%}",
        "regret_ens": f"a mean loss by another h\\*_ens below {REGRET:.0%} of the ensemble's NLL",
    }
    needed = {figure: result.needed(figure) for figure in wanted}
    known = [f"{wanted[figure]}: {count}" for figure, count in needed.items() if count is not None]
    unknown = []
    for figure in (figure for figure, count in needed.items() if count is None):
        mean = result.by_count[most][figure].mean
        reached = f"{mean / result.nll:.1%}" if figure.startswith("regret") else f"{mean:.0%}"
        unknown.append(f"{wanted[figure]} ({reached})")
    parts = [
        f"**{result.task}** (`{result.name}`, {result.replicates} replicates, which together choose h\\*_ind = "
        f"{number(result.h_ind)} and h\\*_ens = {number(result.h_ens)})."
    ]
    parts += [f"Replicates needed: for {'; for '.join(known)}."] * bool(known)
    parts += [
        f"{result.replicates} replicates are too few to say how many it takes for "
        f"{'; for '.join(unknown)}; what {most}, the most that can be drawn, reach is in brackets."
    ] * bool(unknown)
    return " ".join(parts)


def conclusion(results: Sequence[ReplicateResults]) -> str:
    """In one sentence."""
    said = []
    for result in results:
        most, needed = max(result.by_count), {name: result.needed(name) for name in ("ind", "ens")}
        counts = [
            f"h\\*_{name} takes {f'more than {most}' if count is None else count}" for name, count in needed.items()
        ]
        few = f"{result.replicates} replicates are too few to say"
        said.append(f"on {result.task} {few if set(needed.values()) == {None} else ' and '.join(counts)}")
    return f"replicates until {AGREEMENT:.0%} of draws choose the same setting: {'; '.join(said)}"


def replicate_table(results: Sequence[ReplicateResults]) -> Table:
    """A row per search and r."""
    found: list[tuple[Cell, ...]] = [
        (result.task, str(count), *(values[name] for name in FIGURES))
        for result in results
        for count, values in result.by_count.items()
    ]
    shares = {"ind": "Same h*_ind (%)", "ens": "Same h*_ens (%)", "both": "Both (%)", "sign": "Same order (%)"}
    columns = (
        Column("task", "Task"),
        Column("replicates", "Replicates r"),
        *(Column(key, title, 0, 100.0) for key, title in shares.items()),
        Column("regret_ind", "Loss at h*_ind, average member (NLL)", 5),
        Column("regret_ens", "Loss at h*_ens, ensemble (NLL)", 5),
    )
    caption = (
        f"Choices from r replicates, {DRAWS:,} draws without replacement, against the choice of all; ± is a jackknife "
        "error over replicates. The loss is the mean validation NLL of what r replicates choose minus that of what all "
        "choose, on the replicates not drawn. (Those had a say in the choice of all, so the loss is rather too large.)"
    )
    return Table(NAME, caption, columns, tuple(found))


def draw(results: Sequence[ReplicateResults]) -> Figure:
    """Agreement above, loss below, a column per search."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(1.0 + 3.4 * max(len(results), 2), 5.8), layout="constrained")
        grid = figure.subplots(2, len(results), squeeze=False, sharex="col", sharey="row")
        for column, result in enumerate(results):
            upper, lower = grid[0][column], grid[1][column]
            same = {"ind": (IND, "--v", f"same {IND_MATH}"), "ens": (ENS, "-^", f"same {ENS_MATH}")}
            _lines(upper, result, same | {"sign": ("#7F7F7F", ":s", "same order of the two")}, 100)
            upper.axhline(100 * AGREEMENT, color="black", linewidth=0.8)
            upper.set_title(f"{result.task}, {result.replicates} replicates", fontsize=10)
            upper.set_ylim(0, 105)
            loss = {
                "regret_ind": (IND, "--v", f"of the average member at {IND_MATH}"),
                "regret_ens": (ENS, "-^", f"of the ensemble at {ENS_MATH}"),
            }
            _lines(lower, result, loss, 100 / result.nll)
            lower.axhline(100 * REGRET, color="black", linewidth=0.8)
            lower.set_xlabel("Replicates r")
            lower.set_xscale("log")
            lower.set_xticks([*result.by_count], [str(count) for count in result.by_count])
            lower.set_xticks([], minor=True)
        grid[0][0].set_ylabel("Draws (%)")
        grid[1][0].set_ylabel("Loss (% of the ensemble's NLL)")
        shares, losses = (row[0].get_legend_handles_labels() for row in grid)
        figure.legend(*shares, loc="outside upper center", ncols=3, fontsize=9)
        figure.legend(*losses, loc="outside lower center", ncols=2, fontsize=9)
        return figure


def _lines(axes: Axes, result: ReplicateResults, looks: dict[str, tuple[str, str, str]], scale: float) -> None:
    for name, (color, look, title) in looks.items():
        counts, values = [*result.by_count], [figures[name] for figures in result.by_count.values()]
        mean = scale * np.array([value.mean for value in values])
        sem = scale * np.array([value.sem for value in values])
        reach = [sem, sem if name.startswith("regret") else np.minimum(sem, scale - mean)]  # no share is above 1
        axes.errorbar(counts, mean, yerr=reach, fmt=look, color=color, capsize=2, markersize=4.5, label=title)

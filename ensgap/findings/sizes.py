"""The optimality gap as a function of the ensemble's size, from sub-ensembles of what was trained.

h*_ens(m) minimises the validation NLL of sub-ensembles of size m; h*_ind is h*_ens(1). Both are chosen on validation
data, and the gap is that of sub-ensembles of size m of the retrained ensembles on test data, paired by replicate.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from ensgap.findings.searches import HOW, Search, find_searches, missing
from ensgap.findings.section import Section
from ensgap.findings.sub_ensembles import pool, sub_figures
from ensgap.findings.tables import interval_cells, interval_columns, write_table
from ensgap.gap import Array, Choice, Estimate, select
from ensgap.report.style import ENS, IND, STYLE, number, save
from ensgap.report.tables import Cell, Column, Table
from ensgap.report.words import interval_of, signed

SIZES = (1, 2, 4, 8, 16)
NAME = "gap_by_size"


@dataclass(frozen=True)
class SizeGap:
    """One size of one study; None where a setting was not tested, or nothing could be chosen."""

    size: int
    choice: Choice | None  # h*_ens(m), None for sizes that only pooled members have
    weight_decay: float | None
    gap: Estimate | None  # test NLL at h*_ind minus at h*_ens(m)
    error_gap: Estimate | None
    fixed: Estimate | None  # at h*_ind minus at h*_ens(M), the same two settings for all sizes

    @property
    def pooled(self) -> bool:
        """Whether its ensembles were put together from members of several replicates."""
        return self.choice is None


@dataclass(frozen=True)
class SizeResults:
    """All sizes of one study."""

    search: Search
    h_ind: float
    h_ens: float  # of the whole ensemble
    pairs: int
    sizes: tuple[SizeGap, ...]


def read_sizes(search: Search) -> SizeResults:
    """Selection on validation data for every size, then the test of what was tested."""
    usual = [size for size in SIZES if size < search.members] + [search.members]
    choices = {size: _choose(search, size) for size in usual}
    chosen = {size: search.weight_decays[choice.trial] for size, choice in choices.items()}
    h_ind, h_ens = chosen[1], chosen[search.members]
    found, tested = [], _Tested(search, usual)
    for size in usual:
        gap, error_gap = (tested.difference(h_ind, chosen[size], size, metric) for metric in ("nll", "error"))
        fixed = tested.difference(h_ind, h_ens, size, "nll")
        found.append(SizeGap(size, choices[size], chosen[size], gap, error_gap, fixed))
    for size in (size for size in SIZES if size > search.members and size % search.members == 0):
        fixed = _pooled_difference(search, h_ind, h_ens, size // search.members)
        if fixed is not None:
            found.append(SizeGap(size, None, None, None, None, fixed))
    return SizeResults(search, h_ind, h_ens, len(_pairs(search, h_ind, h_ens)), tuple(found))


def _choose(search: Search, size: int) -> Choice:
    """h*_ens of a size, with how firmly."""
    table = [*search.size_nll(size)]
    return select(table, table, [False] * len(table)).ens


def _pairs(search: Search, one: float, other: float) -> list[int]:
    return sorted(set(search.tested.get(one, ())) & set(search.tested.get(other, ())))


class _Tested:
    """Test figures of sub-ensembles, each weight decay read once."""

    def __init__(self, search: Search, sizes: Sequence[int]) -> None:
        self.search, self.sizes = search, sizes
        self.known: dict[float, dict[tuple[int, str], Array]] = {}

    def at(self, weight_decay: float, size: int, metric: str, replicates: Sequence[int]) -> Array:
        """A metric of sub-ensembles of a size, averaged over the cyclic ones, at these replicates."""
        own = self.search.tested[weight_decay]
        if weight_decay not in self.known:
            predictions = self.search.test_predictions(weight_decay, own)
            self.known[weight_decay] = sub_figures(predictions, self.sizes)
        values: Array = self.known[weight_decay][size, metric][[own.index(r) for r in replicates]]
        return values

    def difference(self, one: float, other: float, size: int, metric: str) -> Estimate | None:
        """At one weight decay minus at another, paired by replicate; nothing where one was not tested."""
        pairs = _pairs(self.search, one, other)
        if not pairs:
            return None
        return Estimate.of(self.at(one, size, metric, pairs) - self.at(other, size, metric, pairs))


def _pooled_difference(search: Search, one: float, other: float, group: int) -> Estimate | None:
    """The same for the members of several replicates as one ensemble. Test replicates all train on the whole pool, each
    member from a seed of its own, so such an ensemble is one like any other; no member serves in two.
    """
    pairs = _pairs(search, one, other)
    groups = len(pairs) // group
    if groups < 2:
        return None

    def at(weight_decay: float) -> Array:
        pooled = pool(search.test_predictions(weight_decay, pairs[: groups * group]), group)
        return sub_figures(pooled, [pooled.logits.shape[1]])[pooled.logits.shape[1], "nll"]

    return Estimate.of(at(one) - at(other))


def section(published: Path, figures: Path) -> Section | None:
    """The gap against M: of each task, the study with the most members."""
    largest: dict[str, Search] = {}
    for search in find_searches(published):
        known = largest.get(search.task)
        if search.order == search.members > 1 and (known is None or _rank(search) > _rank(known)):
            largest[search.task] = search
    results = [read_sizes(search) for search in largest.values()]
    if not results:
        return None
    save(draw(results), figures, NAME, ("png",))
    parts = [*map(sentence, results), *missing(largest, "a weight-decay search with a shared holdout")]
    parts += [HOW] * ("digits" in largest)
    text = "\n\n".join([*parts, write_table(size_table(results), figures)])
    return Section("The gap as a function of the ensemble's size", text, (figures / f"{NAME}.png",))


def _rank(search: Search) -> tuple[int, int]:
    return search.members, len(search.tested)


def sentence(result: SizeResults) -> str:
    """What a study says, in words."""
    search, own = result.search, [size for size in result.sizes if not size.pooled]
    chosen = ", ".join(f"{number(s.weight_decay or 0.0)} for {s.size}" for s in own)
    parts = [
        f"**{search.task}** (`{search.name}`; {search.members} members trained, {len(search.replicates)} validation "
        f"and {result.pairs} paired test replicates). The weight decay with the lowest validation NLL is {chosen} "
        f"{'member' if own[-1].size == 1 else 'members'}."
    ]
    told = [s for s in own if s.gap is not None and s.size > 1 and s.weight_decay != result.h_ind]
    if told:
        sizes = "; ".join(
            f"{s.size} members: {signed('nll', s.gap.mean)} ({interval_of('nll', s.gap)})" for s in told if s.gap
        )
        parts.append(f"Test NLL that h\\*_ind costs against h\\*_ens(m): {sizes}.")
    same = [str(s.size) for s in own if s.size > 1 and s.weight_decay == result.h_ind]
    if same:
        parts.append(f"Of size {', '.join(same)} both optima are the same setting, and the gap is 0.")
    missing = [str(s.size) for s in own if s.gap is None]
    if missing:
        parts.append(f"What size {', '.join(missing)} selects was not tested, so its gap is not known.")
    if any(s.pooled for s in result.sizes):
        parts.append(
            f"Ensembles of more than {search.members} are members of several test replicates put together; for those "
            "sizes nothing could be selected, so only the two settings tested are compared."
        )
    return " ".join(parts)


def size_table(results: Sequence[SizeResults]) -> Table:
    """A row per study and size."""
    found: list[tuple[Cell, ...]] = []
    for result in results:
        for s in result.sizes:
            share = "–" if s.choice is None or math.isnan(s.choice.share) else f"{100 * s.choice.share:.0f}%"
            chosen = "–" if s.weight_decay is None else number(s.weight_decay)
            shown = [cell for e in (s.gap, s.fixed) for cell in interval_cells(e)]
            error: Cell = "–" if s.error_gap is None else s.error_gap
            size = f"{s.size} (pooled)" if s.pooled else str(s.size)
            found.append((result.search.task, size, chosen, share, *shown, error))
    columns = (
        Column("task", "Task"),
        Column("members", "m"),
        Column("h_ens", "h*_ens(m)"),
        Column("share", "Resamples that choose it"),
        *interval_columns("gap", "Gap, test NLL"),
        *interval_columns("fixed", "h*_ind minus h*_ens(M), test NLL"),
        Column("error_gap", "Gap, error (points)", 2, 100.0),
    )
    caption = (
        "Test loss of sub-ensembles of size m at h*_ind minus at h*_ens(m), and minus at the h*_ens of the whole "
        "ensemble; mean ± SEM over paired test replicates, with 95% intervals (bars in the "
        "figure). Positive: joint tuning paid off."
    )
    return Table(NAME, caption, columns, tuple(found))


def draw(results: Sequence[SizeResults]) -> Figure:
    """The gap against the size, a panel per study."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(1.0 + 3.6 * max(len(results), 2), 3.6), layout="constrained")
        panels = figure.subplots(1, len(results), squeeze=False)[0]
        for axes, result in zip(panels, results, strict=True):
            kinds = (
                ("at h*_ind minus at h*_ens(m), the gap", ENS, "-^", [(s.size, s.gap) for s in result.sizes], 0.96),
                ("at h*_ind minus at h*_ens(M)", IND, "--v", [(s.size, s.fixed) for s in result.sizes], 1.04),
            )
            for title, color, look, values, shift in kinds:
                known = [(size, e) for size, e in values if e is not None]
                if known:
                    x = shift * np.array([size for size, _ in known])
                    reach = [np.nan_to_num(e.high - e.mean) for _, e in known]
                    mean = [e.mean for _, e in known]
                    axes.errorbar(x, mean, yerr=reach, fmt=look, color=color, capsize=3, markersize=5, label=title)
            axes.axhline(0, color="black", linewidth=0.8)
            axes.set_xscale("log", base=2)
            sizes = [s.size for s in result.sizes]
            axes.set_xticks(sizes, [str(size) for size in sizes])
            axes.set_xticks([], minor=True)
            axes.set_xlabel("Members m")
            axes.set_title(f"{result.search.task}, M = {result.search.members}", fontsize=10)
        panels[0].set_ylabel("Difference of test NLL (nats)")
        panels[0].legend(fontsize=9)
        return figure

"""The optimality gap as a function of the ensemble's size, from sub-ensembles of what was trained.

h*_ens(m) minimises the validation NLL of sub-ensembles of size m; h*_ind is h*_ens(1). Both are chosen on validation
data, and the gap is that of sub-ensembles of size m of the retrained ensembles on test data, paired by replicate.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ensgap.findings.searches import Search, find_searches, missing
from ensgap.findings.section import Section
from ensgap.findings.size_figure import CAPTION, Lines, draw
from ensgap.findings.sub_ensembles import pool, sub_figures
from ensgap.findings.tables import interval_cells, interval_columns, write_table
from ensgap.gap import Array, Choice, Estimate, select
from ensgap.report.style import number, save
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
    ensembles: int  # that `fixed` is a mean over

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
    pairs = _pairs(search, h_ind, h_ens)
    found, tested = [], _Tested(search, usual)
    for size in usual:
        gap, error_gap = (tested.difference(h_ind, chosen[size], size, metric) for metric in ("nll", "error"))
        fixed = tested.difference(h_ind, h_ens, size, "nll")
        found.append(SizeGap(size, choices[size], chosen[size], gap, error_gap, fixed, len(pairs)))
    for size in (size for size in SIZES if size > search.members and size % search.members == 0):
        fixed = _pooled_difference(search, h_ind, h_ens, size // search.members)
        if fixed is not None:
            found.append(SizeGap(size, None, None, None, None, fixed, len(pairs) // (size // search.members)))
    return SizeResults(search, h_ind, h_ens, len(pairs), tuple(found))


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
    save(draw({_title(result): _lines(result) for result in results}), figures, NAME, ("png",))
    parts = [*map(sentence, results), *missing(largest, "a weight-decay search with a shared holdout")]
    text = "\n\n".join([*parts, write_table(size_table(results), figures, "Table: the gap by size")])
    said = conclusion(results)
    title = "How does the gap depend on the ensemble's size?"
    return Section(title, f"{said[0].upper()}{said[1:]}.", said, text, figures / f"{NAME}.png", CAPTION)


def _rank(search: Search) -> tuple[int, int]:
    return search.members, len(search.tested)


def _title(result: SizeResults) -> str:
    return f"{result.search.task}, M = {result.search.members}"


def _lines(result: SizeResults) -> Lines:
    """What the figure shows of it."""
    gaps = [(s.size, s.gap) for s in result.sizes if s.gap is not None]
    return gaps, [(s.size, s.fixed) for s in result.sizes if s.fixed is not None]


def conclusion(results: Sequence[SizeResults]) -> str:
    """In one sentence."""
    said = []
    for result in results:
        known = [(s.size, s.gap.mean) for s in result.sizes if s.gap is not None and s.size > 1]
        if not known:
            said.append(f"on {result.search.task} it is not known")
            continue
        gaps = [gap for _, gap in known]
        course = "grows" if gaps == sorted(gaps) and gaps[0] < gaps[-1] else "goes"
        (first, low), (last, high) = known[0], known[-1]
        ends = f"{course} from {signed('nll', low)} for {first} members to {signed('nll', high)} for {last}"
        only = f"is {signed('nll', high)} for {last}"
        said.append(f"on {result.search.task} {ends if first < last else only}")
    return f"the gap in test NLL {'; '.join(said)}"


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
            f"Ensembles of more than {search.members} are members of several test replicates put together ("
            + ", ".join(f"{s.ensembles} of size {s.size}" for s in result.sizes if s.pooled)
            + "); for those sizes nothing could be selected, so only the two settings tested are compared."
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
            found.append((result.search.task, size, str(s.ensembles), chosen, share, *shown, error))
    columns = (
        Column("task", "Task"),
        Column("members", "m"),
        Column("ensembles", "n"),
        Column("h_ens", "h*_ens(m)"),
        Column("share", "Resamples that choose it"),
        *interval_columns("gap", "Gap, test NLL"),
        *interval_columns("fixed", "h*_ind minus h*_ens(M), test NLL"),
        Column("error_gap", "Gap, error (points)", 2, 100.0),
    )
    caption = (
        "Test loss of sub-ensembles of size m at h*_ind minus at h*_ens(m), and minus at the h*_ens of the whole "
        "ensemble; mean ± SEM over n paired test replicates, or n ensembles pooled from them, with 95% intervals. "
        "Positive: joint tuning paid off."
    )
    return Table(NAME, caption, columns, tuple(found))

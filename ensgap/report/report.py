"""What a report is made of, whatever the study."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from matplotlib.figure import Figure

from ensgap.gap import Estimate
from ensgap.report.tables import Table


@dataclass(frozen=True)
class NamedFigure:
    """A figure with the name of its files and its caption."""

    name: str
    caption: str
    figure: Figure


@dataclass(frozen=True)
class Card:
    """A number to see first."""

    title: str
    value: str
    below: str = ""
    kind: str = ""  # "ind" or "ens" for their colours


@dataclass(frozen=True)
class Report:
    """Everything that is written into a study's folder."""

    title: str
    headline: str
    notes: Sequence[str]
    cards: Sequence[Card]
    tables: Sequence[Table]
    figures: Sequence[NamedFigure]  # the first two stand above the tables
    facts: Sequence[tuple[str, str]]
    command: str
    summary: Mapping[str, Any]
    files: Mapping[str, str] = field(default_factory=dict)  # more of them, by name
    appendix: Sequence[Table] = ()  # tables for the end of the page
    advice: Sequence[str] = ()  # what to do now, in sentences


def scaled_down(config: Mapping[str, Any]) -> str | None:
    """In words, how the study is smaller than its task allows; none if it is not."""
    share = float(config["train_fraction"])
    before = f"{100 * share:.4g}% of the training pool" if share < 1 else None  # of studies that did not record it
    words: str | None = config.get("scaled_down", before)
    return words


def say_scaled_down(config: Mapping[str, Any], headline: str) -> str:
    """A study's answer, which begins with that."""
    smaller = scaled_down(config)
    return headline if smaller is None else f"Scaled down ({smaller}). {headline}"


def label_scaled_down(report: Report, config: Mapping[str, Any]) -> Report:
    """The report, whose headline, captions and summary say it wherever it is shown."""
    smaller = scaled_down(config)
    if smaller is None:
        return report
    said, headline = f" Scaled down: {smaller}.", say_scaled_down(config, report.headline)
    return replace(
        report,
        title=f"{report.title}, scaled down",
        headline=headline,
        tables=[replace(table, caption=table.caption + said) for table in report.tables],
        appendix=[replace(table, caption=table.caption + said) for table in report.appendix],
        figures=[replace(figure, caption=figure.caption + said) for figure in report.figures],
        summary={**report.summary, "headline": headline, "scaled_down": smaller},
    )


def data_notes(study: Mapping[str, Any]) -> list[str]:
    """What a reader must know of the data before believing the figures."""
    data, config = study["data"], study["config"]
    notes = list(data["notes"])
    smaller = scaled_down(config)
    if smaller is not None:
        notes.append(
            f"Scaled down: {smaller} ({data['pool']:,} points in the pool, {data['test']:,} in the test data). Compare "
            "it with a study at full size in direction only, never in value."
        )
    if config.get("smoke"):
        notes.append("This was a smoke run: it shows that everything works, and its figures mean nothing.")
    return notes


def facts(study: Mapping[str, Any], names: Sequence[str]) -> list[tuple[str, str]]:
    """How it was made: sizes, the named parts of the configuration, versions."""
    data, config = study["data"], study["config"]
    found = [("training pool", f"{data['pool']:,} points"), ("test data", f"{data['test']:,} points")]
    for name in names:
        value = config[name]
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        found.append((name.replace("_", " "), text))
    found.append(("versions", ", ".join(f"{name} {version}" for name, version in study["versions"].items())))
    return found


def count_verdicts(verdicts: Sequence[str]) -> str:
    """How often joint was better than individual, in words."""
    better, worse = verdicts.count("positive"), verdicts.count("negative")
    return (
        f"in {better} of {len(verdicts)} holdouts tried, a higher one in {worse}, and could not be told apart in "
        f"{len(verdicts) - better - worse} (95% intervals, paired by replicate)"
    )


def summary_head(study: Mapping[str, Any], headline: str) -> dict[str, Any]:
    """What summary.json begins with, whatever the study."""
    config = study["config"]
    head = {name: config[name] for name in ("study", "task", "members", "replicates")} | {"headline": headline}
    return head | {name: study[name] for name in ("seconds", "config", "versions", "command")}


def json_estimate(estimate: Estimate, interval: bool) -> dict[str, Any]:
    """An estimate for summary.json."""
    found: dict[str, Any] = {"mean": json_number(estimate.mean), "sem": json_number(estimate.sem)}
    return found | ({"ci95": [json_number(estimate.low), json_number(estimate.high)]} if interval else {})


def json_number(value: float) -> float | None:
    """A number that one replicate cannot give is null."""
    return value if math.isfinite(value) else None

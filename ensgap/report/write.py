"""Writes all files of a report into a study's folder."""

import base64
import math
from pathlib import Path

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup

from ensgap.folder import StudyFolder, write_json
from ensgap.report.content import report_tables, trials_table
from ensgap.report.figures import draw_figures
from ensgap.report.summary import headline, number, summary
from ensgap.report.tables import Table, escape_markdown
from ensgap.results import StudyResults, read_results


def write_report(folder: StudyFolder) -> StudyResults:
    """Compute everything from the saved predictions and write it."""
    results = read_results(folder)
    tables = report_tables(results)
    for table in tables:
        _write(folder.path / "tables" / f"{table.name}.csv", table.csv())
        _write(folder.path / "tables" / f"{table.name}.tex", table.latex())
    _write(folder.path / "trials.csv", trials_table(results).csv())
    write_json(folder.path / "summary.json", summary(results))
    figures = draw_figures(results, folder.path / "figures")
    _write(folder.path / "report.md", _markdown(results, tables, figures))
    _write(folder.path / "report.html", _html(results, tables, figures, folder.path / "figures"))
    return results


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _title(results: StudyResults) -> str:
    return f"Weight decay of a deep ensemble on {results.config['task']}"


def _notes(results: StudyResults) -> list[str]:
    """What a reader must know before believing the figures."""
    data = results.study["data"]
    assert isinstance(data, dict)
    notes = list(data["notes"])
    share = float(str(results.config["train_fraction"]))
    if share < 1:
        notes.append(f"Scaled down: {share:.4g} of the training pool was used ({data['pool']:,} points).")
    diverged = [number(trial.weight_decay) for trial in results.trials if trial.diverged]
    if diverged:
        notes.append(f"Diverged, and so never selected: weight decay {', '.join(diverged)}.")
    lost = [name for name, tested in results.test.items() if tested.diverged]
    if lost:
        notes.append("Some retrained ensembles diverged; the gap is over the replicates that both optima have.")
    asked = int(str(results.config["test_replicates"]))
    if results.pairs < asked and not lost:
        notes.append(f"Unfinished: {results.pairs} of {asked} test replicates are there; continue with --resume.")
    edge = max(trial.weight_decay for trial in results.trials)  # the other edge, 0, is the end of the road
    for name, chosen in (("average member", results.h_ind), ("ensemble", results.h_ens)):
        if chosen.weight_decay == edge:
            notes.append(
                f"The best weight decay for the {name}, {number(chosen.weight_decay)}, is the largest that was tried: "
                "look further with a wider --grid."
            )
    if results.config.get("smoke"):
        notes.append("This was a smoke run: it shows that everything works, and its figures mean nothing.")
    return notes


def _facts(results: StudyResults) -> list[tuple[str, str]]:
    config = results.config
    data = results.study["data"]
    assert isinstance(data, dict)
    names = (
        "task",
        "members",
        "replicates",
        "test_replicates",
        "epochs",
        "lr",
        "train_fraction",
        "val_fraction",
        "holdout",
        "search",
        "seed",
    )
    facts = [("training pool", f"{data['pool']:,} points"), ("test data", f"{data['test']:,} points")]
    facts += [(name.replace("_", " "), str(config[name])) for name in names]
    versions = results.study["versions"]
    assert isinstance(versions, dict)
    facts.append(("versions", ", ".join(f"{name} {version}" for name, version in versions.items())))
    return facts


def _markdown(results: StudyResults, tables: list[Table], figures: list[tuple[str, str]]) -> str:
    parts = [f"# {_title(results)}", headline(results), *(f"> {note}" for note in _notes(results))]
    parts += [f"![{caption}](figures/{name}.png)\n\n*{caption}*" for name, caption in figures[:2]]
    parts += [f"{escape_markdown(table.caption)}\n\n{table.markdown()}" for table in tables]
    parts += [f"![{caption}](figures/{name}.png)\n\n*{caption}*" for name, caption in figures[2:]]
    parts += ["## How it was made", "\n".join(f"- {name}: {value}" for name, value in _facts(results))]
    parts += [f"```\n{results.study['command']}\n```"]
    return "\n\n".join(parts) + "\n"


def _html(results: StudyResults, tables: list[Table], figures: list[tuple[str, str]], folder: Path) -> str:
    environment = Environment(loader=PackageLoader("ensgap.report"), autoescape=select_autoescape())
    gap = results.gap["nll"]
    images = [
        (caption, "data:image/png;base64," + base64.b64encode((folder / f"{name}.png").read_bytes()).decode())
        for name, caption in figures
    ]
    return environment.get_template("page.html").render(
        title=_title(results),
        headline=headline(results),
        notes=_notes(results),
        h_ind=number(results.h_ind.weight_decay),
        h_ens=number(results.h_ens.weight_decay),
        gap=f"{gap.mean:+.4f}",
        interval="" if math.isnan(gap.sem) else f"95% interval {gap.low:+.4f} to {gap.high:+.4f}",
        figures=images,
        tables=[(table.name, Markup(table.html())) for table in tables],
        facts=_facts(results),
        command=str(results.study["command"]),
    )

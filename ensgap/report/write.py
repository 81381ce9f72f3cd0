"""Writes all files of a report into a study's folder."""

import base64
from pathlib import Path

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup

from ensgap.folder import StudyFolder, write_json
from ensgap.report.batch_ensemble import batch_ensemble_report
from ensgap.report.early_stopping import early_stopping_report
from ensgap.report.report import Report
from ensgap.report.style import save
from ensgap.report.tables import escape_markdown
from ensgap.report.temperature import temperature_report
from ensgap.report.weight_decay import weight_decay_report

STUDIES = {
    "weight_decay": weight_decay_report,
    "temperature": temperature_report,
    "early_stopping": early_stopping_report,
    "batch_ensemble": batch_ensemble_report,
}


def write_report(folder: StudyFolder) -> Report:
    """Compute everything from the saved predictions and write it."""
    report = STUDIES[folder.read_study()["config"]["study"]](folder)
    for table in (*report.tables, *report.appendix):
        _write(folder.path / "tables" / f"{table.name}.csv", table.csv())
        _write(folder.path / "tables" / f"{table.name}.tex", table.latex())
    for name, text in report.files.items():
        _write(folder.path / name, text)
    for figure in report.figures:
        save(figure.figure, folder.path / "figures", figure.name)
    write_json(folder.path / "summary.json", report.summary)
    _write(folder.path / "report.md", _markdown(report))
    _write(folder.path / "report.html", _html(report, folder.path / "figures"))
    return report


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _markdown(report: Report) -> str:
    figures = [f"![{f.caption}](figures/{f.name}.png)\n\n*{f.caption}*" for f in report.figures]
    tables = [f"{escape_markdown(table.caption)}\n\n{table.markdown()}" for table in report.tables]
    appendix = [f"{escape_markdown(table.caption)}\n\n{table.markdown()}" for table in report.appendix]
    parts = [f"# {report.title}", report.headline, *(f"> {note}" for note in report.notes)]
    if report.advice:
        parts += ["## What to do", "\n".join(f"- {escape_markdown(sentence)}" for sentence in report.advice)]
    parts += [*figures[:2], *tables, *figures[2:], *appendix]
    parts += ["## How it was made", "\n".join(f"- {name}: {value}" for name, value in report.facts)]
    parts += [f"```\n{report.command}\n```"]
    return "\n\n".join(parts) + "\n"


def _html(report: Report, folder: Path) -> str:
    environment = Environment(loader=PackageLoader("ensgap.report"), autoescape=select_autoescape())
    images = [
        (f.caption, "data:image/png;base64," + base64.b64encode((folder / f"{f.name}.png").read_bytes()).decode())
        for f in report.figures
    ]
    tables, appendix = (
        [(table, Markup(table.html())) for table in group] for group in (report.tables, report.appendix)
    )
    page = environment.get_template("page.html")
    return page.render(report=report, figures=images, tables=tables, appendix=appendix)

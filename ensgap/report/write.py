"""Writes all files of a report into a study's folder."""

import base64
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup

from ensgap.folder import StudyFolder, write_json
from ensgap.report.batch_ensemble import batch_ensemble_report
from ensgap.report.early_stopping import early_stopping_report
from ensgap.report.report import Report
from ensgap.report.style import KINDS, save
from ensgap.report.tables import escape_markdown
from ensgap.report.temperature import temperature_report
from ensgap.report.tune import tune_report
from ensgap.report.weight_decay import weight_decay_report
from ensgap.storage import Place, write_whole

STUDIES = {
    "weight_decay": weight_decay_report,
    "tune": tune_report,
    "temperature": temperature_report,
    "early_stopping": early_stopping_report,
    "batch_ensemble": batch_ensemble_report,
}


def write_report(folder: StudyFolder, where: Path | None = None, kinds: Sequence[str] = KINDS) -> Report:
    """Compute everything from the saved predictions and write it, here or elsewhere; if the predictions are in another
    storage, a copy goes there. `kinds` are the endings of the figures' files; the page needs "png".
    """
    report = STUDIES[folder.read_study()["config"]["study"]](folder)
    out = where or folder.report
    for table in (*report.tables, *report.appendix):
        _write(out / "tables" / f"{table.name}.csv", table.csv())
        _write(out / "tables" / f"{table.name}.tex", table.latex())
    for name, text in report.files.items():
        _write(out / name, text)
    for figure in report.figures:
        save(figure.figure, out / "figures", figure.name, kinds)
    write_json(out / "summary.json", report.summary)
    _write(out / "report.md", _markdown(report))
    _write(out / "report.html", _html(report, out / "figures"))
    if where is None and out != folder.path:
        _copy(report, out, folder.path)
    return report


def _copy(report: Report, out: Path, to: Place) -> None:
    """The report's files into the study's storage."""
    names = ["report.html", "report.md", "summary.json", *report.files]
    names += [f"tables/{t.name}.{kind}" for t in (*report.tables, *report.appendix) for kind in ("csv", "tex")]
    names += [f"figures/{figure.name}.{kind}" for figure in report.figures for kind in KINDS]
    for name in names:
        write_whole(to / name, (out / name).read_bytes())


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

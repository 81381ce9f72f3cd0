"""The page of findings: the claims and their answers, what goes beyond them, and every published study."""

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

import ensgap.findings
from ensgap.errors import UserError
from ensgap.findings.claims import Answered, answer_claims
from ensgap.findings.rule import RULE
from ensgap.findings.section import Section
from ensgap.findings.studies import Worth, read_published


def page(reports: Path, figures: Path) -> str:
    """The markdown of reports/README.md; the figures of what goes beyond the paper are drawn into a folder of which the
    page thinks as published/figures.
    """
    published = reports / "published"
    studies = read_published(published)
    if not studies:
        raise UserError(f"There is no study below {published}; put one there with python -m ensgap.publish.")
    surprises = reports / "surprises.md"
    environment = Environment(loader=PackageLoader("ensgap.findings"), undefined=StrictUndefined)
    text = environment.get_template("page.md").render(
        studies=studies,
        hours=sum(study.core_hours for study in studies),
        claims=answer_claims(published),
        rule=RULE,
        beyond=list(_sections(published, figures)),
        surprises=surprises.read_text() if surprises.exists() else "",
        figures="published/figures",
        short=_short,
        label=_label,
    )
    return text.rstrip("\n") + "\n"


def write_page(reports: Path) -> Path:
    """Write reports/README.md."""
    file = reports / "README.md"
    file.write_text(page(reports, reports / "published" / "figures"))
    return file


def _sections(published: Path, figures: Path) -> Iterator[Section]:
    """Of every module beside this one that has a function `section`."""
    for module in pkgutil.iter_modules(ensgap.findings.__path__):
        if module.name.startswith("_"):
            continue
        make = getattr(import_module(f"ensgap.findings.{module.name}"), "section", None)
        found = make(published, figures) if callable(make) else None
        if found is not None:
            yield found


def _short(answered: Answered) -> str:
    """The answers in a table's cell."""
    if not answered.answers:
        return f"not answered yet: `{answered.claim.command}`"
    return "; ".join(f"**{a.verdict}** ({a.on}{_label(a.worth)})" for a in answered.answers)


def _label(worth: Worth) -> str:
    """What must be said of a study wherever it is shown."""
    return "" if worth == "as in the paper" else f", {worth}"

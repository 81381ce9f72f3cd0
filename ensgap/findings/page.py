"""The page of findings: the claims and their answers, what goes beyond them, and every published study."""

import pkgutil
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

import ensgap.findings
from ensgap.errors import UserError
from ensgap.findings.claims import Answer, Answered, answer_claims, parts_of, read_all
from ensgap.findings.rule import RULE, combined
from ensgap.findings.searches import HOW
from ensgap.findings.section import Section
from ensgap.findings.shown import order_rows, shown_studies
from ensgap.findings.studies import WORTHS, PublishedStudy, Worth, read_published
from ensgap.findings.summary import summary, where


def page(reports: Path, figures: Path) -> str:
    """The markdown of reports/README.md; the figures of what goes beyond the paper are drawn into a folder of which the
    page thinks as published/figures.
    """
    published = reports / "published"
    studies = read_published(published)
    if not studies:
        raise UserError(f"There is no study below {published}; put one there with python -m ensgap.publish.")
    surprises = reports / "surprises.md"
    results = read_all(studies)
    claims, sections = answer_claims(results), list(_sections(published, figures))
    answering = list(dict.fromkeys(answer.study for claim in claims for answer in claim.answers))
    environment = Environment(loader=PackageLoader("ensgap.findings"), undefined=StrictUndefined)
    text = environment.get_template("page.md").render(
        studies=studies,
        shown=shown_studies(studies),
        orders=order_rows(results),
        hours=sum(study.core_hours for study in studies),
        summary=summary(claims, results, sections),
        claims=claims,
        columns=[(worth, where(worth, answering)) for worth in WORTHS],
        rule=RULE,
        beyond=sections,
        how=HOW if any(study.task == "digits" for study in studies) else "",
        surprises=surprises.read_text() if surprises.exists() else "",
        figures="published/figures",
        cell=lambda answered, worth: _cell(answered, worth, answering),
        slug=_slug,
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


def _cell(answered: Answered, worth: Worth, studies: list[PublishedStudy]) -> str:
    """The answers of studies of that worth, in a table's cell."""
    if not answered.answers:
        return f"not answered yet: `{answered.claim.command}`" if worth == WORTHS[0] else "–"
    together = answered.together(worth)
    data = Counter(answers[0].study.data for answers in together.values())
    named = len(together) > 1 or len({study.data for study in studies if study.worth == worth}) > 1
    said = []
    for on, answers in together.items():
        name = answers[0].study.data if data[answers[0].study.data] == 1 else on
        said.append(f"{name}: {_verdict(answers)}" if named else _verdict(answers))
    return "; ".join(said) or "–"


def _verdict(answers: tuple[Answer, ...]) -> str:
    """The verdict, and what it alone would hide."""
    parts = parts_of(answers)
    verdict = combined(parts)
    verdicts = Counter(part.verdict for part in parts)
    mixed = ", ".join(f"{count} {part}" for part, count in verdicts.items()) if len(verdicts) > 1 else ""
    hidden = "; ".join(filter(None, (f"of {len(parts)} parts {mixed}" * bool(mixed), *(part.brief for part in parts))))
    return f"**{verdict}** ({hidden})" if hidden else f"**{verdict}**"


def _slug(title: str) -> str:
    """What GitHub calls a heading in links."""
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")


def _label(worth: Worth) -> str:
    """What must be said of a study wherever it is shown."""
    return "" if worth == "as in the paper" else f", {worth}"

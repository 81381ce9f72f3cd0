"""What is published can be rebuilt: every table, summary and report from its committed predictions, and the page."""

import csv
import json
import math
import re
import shutil
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from ensgap.findings.page import page
from ensgap.folder import StudyFolder
from ensgap.publish import size_of
from ensgap.report import write_report
from tests.conftest import ROOT

REPORTS = ROOT / "reports"
PUBLISHED = REPORTS / "published"
FOLDERS = sorted(file.parent for file in PUBLISHED.glob("*/study.json"))
NUMBER = re.compile(r"[-+−]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?")
PLACES = re.compile(r"(?<![\w./:])/(?:home|root|tmp|work|Users|mnt|data)/")
needs_studies = pytest.mark.skipif(
    not FOLDERS and not (REPORTS / "README.md").exists(), reason="no study is published yet"
)


def same_text(ours: str, theirs: str) -> bool:
    """Equal but for numbers, which may differ by one in their last digit: another processor rounds differently."""
    return NUMBER.split(ours) == NUMBER.split(theirs) and all(
        abs(_value(a) - _value(b)) <= 1.01 * 10.0 ** -len(b.partition(".")[2].partition("e")[0]) * _power(b)
        for a, b in zip(NUMBER.findall(ours), NUMBER.findall(theirs), strict=True)
    )


def _value(text: str) -> float:
    return float(text.replace(",", "").replace("−", "-"))


def _power(text: str) -> float:
    return 10.0 ** int(text.partition("e")[2] or 0)


def same_field(ours: str, theirs: str) -> bool:
    try:
        if math.isclose(float(ours), float(theirs), rel_tol=1e-6, abs_tol=1e-9):
            return True
        return len(theirs.partition(".")[2]) >= 4 and same_text(ours, theirs)  # a difference that is rounded there too
    except ValueError:
        return same_text(ours, theirs)


def same_rows(ours: Sequence[Sequence[str]], theirs: Sequence[Sequence[str]]) -> bool:
    if [len(row) for row in ours] != [len(row) for row in theirs]:
        return False
    return all(map(same_field, chain.from_iterable(ours), chain.from_iterable(theirs)))


def same_json(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(same_json(ours[name], theirs[name]) for name in ours)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same_json, ours, theirs))
    if isinstance(ours, float) and isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=1e-6, abs_tol=1e-9)
    return same_text(ours, theirs) if isinstance(ours, str) and isinstance(theirs, str) else bool(ours == theirs)


def differences(rebuilt: Path, committed: Path) -> list[str]:
    """The files of a report that do not say the same."""
    names = {path.relative_to(committed) for path in [*committed.glob("tables/*.csv"), *committed.glob("*.csv")]}
    names |= {path.relative_to(rebuilt) for path in [*rebuilt.glob("tables/*.csv"), *rebuilt.glob("*.csv")]}
    found = []
    for name in sorted(names):
        if not ((rebuilt / name).exists() and (committed / name).exists()):
            found.append(f"{name}: only one has it")
            continue
        ours, theirs = (list(csv.reader((folder / name).open())) for folder in (rebuilt, committed))
        found += [] if same_rows(ours, theirs) else [str(name)]
    ours, theirs = (json.loads((folder / "summary.json").read_bytes()) for folder in (rebuilt, committed))
    found += [] if same_json(ours, theirs) else ["summary.json"]
    texts = [(folder / "report.md").read_text() for folder in (rebuilt, committed)]
    return found + ([] if same_text(*texts) else ["report.md"])


@needs_studies
@pytest.mark.parametrize("committed", FOLDERS, ids=lambda path: path.name)
def test_every_published_table_is_rebuilt_from_its_predictions(committed: Path, tmp_path: Path) -> None:
    shutil.copy(committed / "study.json", tmp_path)
    shutil.copytree(committed / "trials", tmp_path / "trials")
    write_report(StudyFolder(tmp_path), kinds=("png",))
    assert [*committed.glob("tables/*.csv")]
    assert differences(tmp_path, committed) == []


@needs_studies
def test_there_are_studies() -> None:
    assert FOLDERS


@pytest.mark.slow
@needs_studies
def test_the_page_is_rebuilt_too(tmp_path: Path) -> None:
    ours, theirs = (text.splitlines() for text in (page(REPORTS, tmp_path), (REPORTS / "README.md").read_text()))
    assert len(ours) == len(theirs)
    assert [(a, b) for a, b in zip(ours, theirs, strict=True) if not same_text(a, b)] == []
    for figure in tmp_path.iterdir():
        assert (PUBLISHED / "figures" / figure.name).exists()


@needs_studies
def test_the_figures_of_the_page_are_there() -> None:
    links = re.findall(r"\]\((published/[^)#]*)\)", (REPORTS / "README.md").read_text())
    assert links and all((REPORTS / link).exists() for link in links)


@needs_studies
def test_the_links_within_the_page_lead_to_headings() -> None:
    text = (REPORTS / "README.md").read_text()
    titles = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    headings = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
    links = re.findall(r"\]\(#([^)]*)\)", text)
    assert links and set(links) <= headings
    assert len(titles) == len(headings)


@needs_studies
def test_what_is_published_is_small_and_names_no_machine() -> None:
    assert size_of(PUBLISHED) < 60e6
    for kind in ("*.json", "*.md", "*.csv"):
        for file in PUBLISHED.rglob(kind):
            assert not PLACES.search(file.read_text()), file


def test_rounding_is_no_difference_and_anything_else_is() -> None:
    assert same_text("NLL 0.4432 ± 0.0021 (95%)", "NLL 0.4433 ± 0.0021 (95%)")
    assert not same_text("NLL 0.4432", "NLL 0.4434")
    assert not same_text("NLL 0.4432", "ECE 0.4432")
    assert not same_text("4 of 18", "18")
    assert same_text("1,234 points", "1,234 points") and not same_text("1,234 points", "1,254 points")
    assert same_field("0.12345678", "0.12345679") and not same_field("0.123451", "0.123461")
    assert same_field("+0.00123", "+0.00124") and not same_field("0.0", "0.1") and not same_field("", "0.1")
    assert not same_rows([["1", "2"]], [["1"], ["2"]])
    assert same_json({"a": [1.0, None, "x"]}, {"a": [1.0 + 1e-9, None, "x"]})
    assert not same_json({"a": [1.0, None]}, {"a": [1.0, 2.0]})

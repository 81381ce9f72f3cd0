"""The gap per size, from predictions for which it is known."""

from pathlib import Path

import pytest

from ensgap.findings.searches import Search, find_searches
from ensgap.findings.sizes import read_sizes, section
from tests.findings.made import nll_at_zero, write_search


def test_each_size_has_its_own_optimum_and_gap(tmp_path: Path) -> None:
    result = read_sizes(Search(write_search(tmp_path / "search")))
    by_size = {s.size: s for s in result.sizes}
    assert [(size, s.weight_decay) for size, s in by_size.items()] == [(1, 0.1), (2, 0.1), (4, 0.0), (8, None)]
    gaps = [by_size[size].gap for size in (1, 2, 4)]
    assert [gap and gap.mean for gap in gaps] == pytest.approx([0, 0, 0.35 - nll_at_zero(4)])
    fixed = [by_size[size].fixed for size in (1, 2, 4, 8)]
    expected = [0.35 - nll_at_zero(size) for size in (1, 2, 4, 4)]  # pooled, a quarter of 8 is wrong as of 4
    assert [e and e.mean for e in fixed] == pytest.approx(expected)
    assert expected[0] < 0 < expected[2]
    assert [s.pooled for s in result.sizes] == [False, False, False, True]


def test_what_was_not_tested_is_said(tmp_path: Path) -> None:
    write_search(tmp_path / "published" / "search", tested=(0.1,))
    (search,) = find_searches(tmp_path / "published")
    assert {s.size: s.gap is None for s in read_sizes(search).sizes} == {1: False, 2: False, 4: True}
    found = section(tmp_path / "published", tmp_path / "figures")
    assert found is not None
    assert "What size 4 selects was not tested" in found.text


def test_the_section_shows_the_numbers_and_writes_its_files(tmp_path: Path) -> None:
    assert section(tmp_path, tmp_path / "figures") is None
    write_search(tmp_path / "search")
    found = section(tmp_path, tmp_path / "figures")
    assert found is not None
    assert found.figure.exists()
    assert f"{0.35 - nll_at_zero(4):+.4f}" in found.text
    assert found.conclusion == (
        f"The gap in test NLL on nci1 grows from +0.0000 for 2 members to {0.35 - nll_at_zero(4):+.4f} for 4."
    )
    assert "(2 of size 8)" in found.text
    assert "nci1,8 (pooled),2," in (tmp_path / "figures" / "gap_by_size.csv").read_text()

"""Subsamples of replicates, from losses for which the shares are known."""

from pathlib import Path

import numpy as np
import pytest

from ensgap.findings.replicates import ReplicateResults, conclusion, section, sentence, subsample
from tests.findings.made import write_search

OUTLIER = np.array([1.0] * 9 + [-5.0])
"""How much worse setting 1 is than setting 0: on average 0.4, but whoever draws the last replicate thinks otherwise."""
ENSEMBLE = np.stack([np.zeros(10), OUTLIER])
AVG_MEMBER = np.stack([np.ones(10), np.zeros(10)])


def test_shares_and_losses_of_an_outlier() -> None:
    found = subsample(AVG_MEMBER, ENSEMBLE)
    assert [*found] == [1, 2, 3, 5]
    for count, figures in found.items():
        drawn = count / 10  # the chance to draw the outlier
        assert figures["ens"].mean == pytest.approx(1 - drawn, abs=0.04)
        assert figures["sign"].mean == figures["both"].mean == figures["ens"].mean
        assert figures["regret_ens"].mean == pytest.approx(drawn, abs=0.04)  # the others are all 1 worse
        assert (figures["ind"].mean, figures["ind"].sem, figures["regret_ind"].mean) == (1, 0, 0)
        assert figures["ens"].sem > 0


def test_how_many_are_needed() -> None:
    result = ReplicateResults("nci1", "x", 10, 0.1, 0.0, 1.0, subsample(AVG_MEMBER, ENSEMBLE))
    assert result.needed("ind") == 1
    assert result.needed("ens") is None
    noisy = np.stack([np.zeros(20), np.tile([3.0, -1.0], 10)])  # a draw of both kinds is right
    found = subsample(noisy, noisy)
    result = ReplicateResults("nci1", "x", 20, 0.0, 0.0, 1.0, found)
    assert found[1]["ens"].mean == pytest.approx(0.5, abs=0.04)
    needed = result.needed("ens")
    assert needed is not None and needed > 1
    assert all(figures["ens"].mean >= 0.9 for count, figures in found.items() if count >= needed)


def test_the_section(tmp_path: Path) -> None:
    assert section(tmp_path, tmp_path / "figures") is None
    write_search(tmp_path / "search")
    found = section(tmp_path, tmp_path / "figures")
    assert found is not None
    assert "together choose h\\*_ind = 0.1 and h\\*_ens = 0)." in found.text
    assert "for the same order of the two in 95%: 1" in found.text and "too few" not in found.text
    assert "on nci1 h\\*_ind takes 1 and h\\*_ens takes 1" in found.conclusion
    assert found.figure.exists()


def test_what_cannot_be_told_is_said() -> None:
    result = ReplicateResults("nci1", "x", 10, 0.1, 0.0, 1.0, subsample(ENSEMBLE, ENSEMBLE))
    text = sentence(result)
    assert "10 replicates are too few to say how many it takes for the same h\\*_ind in 90% of draws (" in text
    assert "what 5, the most that can be drawn, reach is in brackets" in text
    assert "Replicates needed: for the same order of the two in 95%: 1. " in text
    assert conclusion([result]).endswith("on nci1 10 replicates are too few to say")

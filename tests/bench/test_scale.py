"""The cost of trials that do almost nothing, measured for real at a small size."""

from pathlib import Path

import pytest

from ensgap.bench.scale import HEADER, Cost, measure


@pytest.mark.slow
def test_every_trial_is_counted_and_has_its_folder(tmp_path: Path) -> None:
    cost = measure(6, epochs=1, out=tmp_path / "study")
    assert cost.trials == len(list((tmp_path / "study" / "trials").iterdir())) == 6
    assert cost.files == 12  # predictions and record
    assert 0 < cost.searcher < cost.seconds
    assert cost.driver > 0
    assert cost.memory > 2**20


def test_a_row_has_a_cell_for_every_column() -> None:
    row = Cost(100, 1, 30.0, 1.0, 5.0, 1.0, 2**30, 200, 3.5).row()
    assert len(row.split()) == len(HEADER.partition("(")[0].replace(" ms", "").replace(" MiB", "").split())
    assert row.split()[2:6] == ["300", "10", "50.0", "10.0"]

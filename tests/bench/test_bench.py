"""The benchmark runs, prints its table and keeps its figures."""

import json
from pathlib import Path

import pytest

import ensgap.bench.__main__ as bench
from ensgap.bench.contest import Contest


def test_it_prints_and_keeps_every_contest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "CONTESTS", (Contest("digits", 2, 2, 100, 1.5), Contest("nci1", 2, 1, 10, 2.0)))
    monkeypatch.setattr("sys.argv", ["bench", "--quick", "--tasks", "digits", "--out", str(tmp_path / "bench.json")])
    bench.main()
    found = json.loads((tmp_path / "bench.json").read_text())
    (contest,) = found["contests"]
    assert contest["contest"] == {"task": "digits", "members": 2, "replicates": 2, "points": 100, "target": 1.5}
    assert contest["ratio"] > 0 and found["peak_gflops"] > contest["gflops"] > 0
    # forward and both backward products of 64×128, 128×128 and 128×10 weights, less the first input's gradient
    products = 3 * (64 * 128 + 128 * 128 + 128 * 10) - 64 * 128
    assert contest["gflop"] * 1e9 == pytest.approx(2 * 4 * 100 * products)
    assert "2 × 2" in capsys.readouterr().out

"""Each benchmark task runs a study from end to end: tiny ones on made data, a short one on the real NCI1."""

import json
from pathlib import Path
from typing import Any

import pytest

from ensgap.plans.design_config import EarlyStoppingConfig
from ensgap.plans.weight_decay import WeightDecayConfig
from ensgap.search import design, weight_decay
from ensgap.search.weight_decay import weight_decay_study
from ensgap.tasks import get_task
from tests.made_data import make_all
from tests.tasks.test_loaders import REAL, real_data

pytestmark = pytest.mark.slow


LONG = pytest.mark.long


@pytest.mark.parametrize(
    "task", [pytest.param("cifar10", marks=LONG), "nci1", "covertype", pytest.param("ag_news", marks=LONG)]
)
def test_a_tiny_study(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_all(tmp_path / "data", monkeypatch)
    config = WeightDecayConfig(
        task=task,
        members=3,
        replicates=1,
        test_replicates=2,
        epochs=1,
        val_fraction=0.4,
        holdout="overlapping",
        train_fraction=0.9,
        grid=(1e-3,),
        data_dir=tmp_path / "data",
        out=tmp_path / "out",
    )
    results = weight_decay_study(config)
    assert len(results.trials) == 2
    assert not any(trial.diverged for trial in results.trials)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["task"] == task
    assert summary["config"]["train_fraction"] == 0.9
    assert "Scaled down: 90% of the training pool" in (tmp_path / "out" / "report.md").read_text()


@pytest.mark.parametrize(
    ("task", "study"), [("covertype", "early_stopping"), ("cifar10", "weight_decay"), ("ag_news", "weight_decay")]
)
def test_the_preset_laptop_says_scaled_down_wherever_it_is_shown(
    task: str,
    study: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_all(tmp_path / "data", monkeypatch)
    flags: dict[str, Any] = {"task": task, "preset": "laptop", "members": 2, "replicates": 2, "epochs": 1}
    flags |= {"train_fraction": 0.9, "test_fraction": 0.5, "data_dir": tmp_path / "data", "out": tmp_path / "out"}
    if study == "early_stopping":
        design.run(EarlyStoppingConfig(**flags, val_fractions=(0.2,), holdouts=("shared",)))
    else:
        weight_decay.run(WeightDecayConfig(**flags, test_replicates=2, grid=(1e-3,), val_fraction=0.3))
    smaller = get_task(task).scaled_down["laptop"]
    epochs = "at most 1 epochs" if study == "early_stopping" else "1 epochs"
    words = f"90% of the training pool, 50% of the test data, {epochs}, {smaller.smaller_network}"
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["scaled_down"] == words
    assert summary["headline"].startswith(f"Scaled down ({words}). On {smaller.name}, ")
    assert f"Scaled down ({words}). On {smaller.name}, " in capsys.readouterr().out
    for name in ("report.md", "report.html"):
        text = (tmp_path / "out" / name).read_text()
        assert text.count(f"Scaled down: {words}") >= 6  # the note, and every caption
        assert "in direction only, never in value" in text
        assert "(paper " not in text
    latex = [path.read_text() for path in (tmp_path / "out" / "tables").glob("*.tex")]
    assert latex and all("Scaled down: 90" in text for text in latex)
    identities = [json.loads(path.read_text())["identity"] for path in (tmp_path / "out").glob("trials/*/trial.json")]
    assert {(identity["task"], identity["test_fraction"]) for identity in identities} == {(smaller.name, 0.5)}


@real_data
def test_a_short_study_of_the_real_nci1_beats_chance_clearly(tmp_path: Path) -> None:
    config = WeightDecayConfig(
        task="nci1",
        members=2,
        replicates=1,
        test_replicates=2,
        epochs=6,
        grid=(1e-3,),
        data_dir=REAL,
        out=tmp_path / "out",
    )
    results = weight_decay_study(config)
    assert results.test["ens"].figures["ensemble_error"].mean() < 0.4

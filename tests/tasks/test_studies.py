"""Each benchmark task runs a study from end to end: tiny ones on made data, a short one on the real NCI1."""

import json
from pathlib import Path

import pytest

from ensgap.plans.weight_decay import WeightDecayConfig
from ensgap.search.weight_decay import weight_decay_study
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

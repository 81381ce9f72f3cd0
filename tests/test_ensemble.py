"""The ensemble to take home, from a study whose trials are run here, without Ray."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import ensgap
from ensgap.errors import UserError
from ensgap.folder import StudyFolder
from ensgap.plans.tune import TuneConfig
from ensgap.result import TuneResult
from ensgap.results.optima import read_results
from ensgap.search.run import TrialRun
from ensgap.spec import TrialSpec
from ensgap.tasks import Task
from ensgap.versions import versions

X = np.random.default_rng(0).normal(size=(120, 3))
Y = 100 + 10 * X[:, 0] + np.random.default_rng(1).normal(size=120)


def network(width: int = 8) -> nn.Module:
    return nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 2))


def finished(task: Task, out: Path) -> TuneResult:
    config = TuneConfig(
        task=task.name,
        space={"weight_decay": ensgap.log(1e-4, 1e-2), "lr": 0.05, "width": 4},
        search="grid",
        num_samples=2,
        members=3,
        replicates=2,
        test_replicates=2,
        epochs=10,
        out=out,
    )
    plan, folder, data = config.plan(task), StudyFolder(out), task.load(None)
    sizes = {"pool": len(data.pool), "test": len(data.test), "notes": []}
    study = {"config": plan.to_json(), "data": sizes, "command": "", "versions": versions(), "seconds": 1.0}
    folder.write_study(study)

    def run(spec: TrialSpec) -> None:
        list(TrialRun(spec, task, data.pool, data.test, folder).reports(every=100))

    for value in (1e-4, 1e-2):
        setting = {"weight_decay": value, "lr": 0.05, "width": 4}
        run(plan.search_trial(setting))
        for spec in plan.test_trials(setting):
            run(spec)
    return TuneResult(read_results(folder), folder, task)


@pytest.fixture(scope="module")
def regression(tmp_path_factory: pytest.TempPathFactory) -> TuneResult:
    task = ensgap.Task.from_arrays("numbers", X, Y, network=network)
    return finished(task, tmp_path_factory.mktemp("regression"))


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> TuneResult:
    words = np.where(Y > 100, "high", "low")
    return finished(ensgap.Task.from_arrays("words", X, words, network=network), tmp_path_factory.mktemp("classes"))


def test_a_regression_gives_means_and_variances_in_the_users_units(regression: TuneResult, tmp_path: Path) -> None:
    ensemble = regression.fit()
    assert np.corrcoef(ensemble.predict(X), Y)[0, 1] > 0.9
    u = ensemble.uncertainty(X)
    assert np.allclose(u.total, u.aleatoric + u.epistemic)
    assert (u.epistemic >= 0).all()
    plain = regression.fit(calibrate=None).uncertainty(X)
    assert np.allclose(u.aleatoric, plain.aleatoric * ensemble.temperature**2)
    assert np.allclose(u.epistemic, plain.epistemic)
    with pytest.raises(UserError, match="has no classes"):
        ensemble.predict_proba(X)
    with pytest.raises(UserError, match="one joint scale"):
        regression.fit(calibrate="pooled")
    ensemble.save(tmp_path / "e.safetensors")
    assert np.array_equal(ensgap.load(tmp_path / "e.safetensors", network=network).predict(X), ensemble.predict(X))


def test_temperatures_come_from_the_searchs_holdouts(classes: TuneResult) -> None:
    plain = classes.fit(calibrate=None)
    assert plain.temperature == 1
    for how in ("joint", "individual"):
        scaled = classes.fit(calibrate=how)
        outputs = torch.stack([member(torch.tensor(X).float()) for member in plain.members]).double()
        expected = (outputs / scaled.temperature).softmax(-1).mean(0)
        assert np.allclose(scaled.predict_proba(X), expected, atol=1e-6)
        assert scaled.temperature != 1
    pooled = classes.fit(calibrate="pooled")
    powered = plain.predict_proba(X) ** (1 / pooled.temperature)
    assert np.allclose(pooled.predict_proba(X), powered / powered.sum(1, keepdims=True), atol=1e-6)
    assert np.allclose(pooled.uncertainty(X).total, plain.uncertainty(X).total)


def test_members_are_in_evaluation_mode_and_from_seeds_of_their_own(classes: TuneResult) -> None:
    ensemble = classes.fit()
    assert not any(module.training for member in ensemble.members for module in member.modules())
    first, second = (member.state_dict()["0.weight"] for member in ensemble.members[:2])
    assert not torch.equal(first, second)
    again: Any = classes.fit().members[0].state_dict()["0.weight"]
    assert torch.equal(first, again)


@pytest.mark.parametrize("content", [b"nonsense", b""])
def test_a_damaged_file_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(UserError, match="not a safetensors file, or it is damaged"):
        ensgap.load(tmp_path / "x.safetensors", network=network)


def test_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(1)}, str(tmp_path / "x.safetensors"))
    with pytest.raises(UserError, match="was not saved by ensgap"):
        ensgap.load(tmp_path / "x.safetensors", network=network)

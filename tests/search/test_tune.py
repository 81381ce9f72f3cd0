"""`ensgap.tune` for real: a network and data of one's own, both optima, the report, and the ensemble to take home."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import ensgap
from ensgap.errors import UserError
from ensgap.result import TuneResult
from tests.conftest import run_study

RNG = np.random.default_rng(0)
Y = np.array(["red", "green", "blue"])[np.arange(150) % 3]
X = RNG.normal(size=(150, 4)) + 1.5 * (np.arange(150) % 3)[:, None]


def make_task(x: np.ndarray = X, network: Callable[..., nn.Module] | None = None) -> ensgap.Task:
    class Local(nn.Module):
        """A class that exists only in this function, and so reaches workers by value."""

        def __init__(self, width: int, dropout: float) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.layers(x)
            return result

    made = network or (lambda width=8, dropout=0.1: Local(width, dropout))
    return ensgap.Task.from_arrays("mine", x, Y, network=made)


def space(trial: Any) -> dict[str, Any]:
    optimizer = trial.suggest_categorical("optimizer", ["sgd", "adam"])
    setting = {"optimizer": optimizer, "lr": trial.suggest_float("lr", 1e-3, 1e-1, log=True)}
    if optimizer == "sgd":
        setting["momentum"] = trial.suggest_float("momentum", 0.0, 0.9)
    return setting | {"width": trial.suggest_int("width", 4, 8), "batch_size": 32}


SMALL: Any = {"members": 2, "replicates": 2, "test_replicates": 2, "epochs": 3, "num_samples": 5}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"space": {"lr": 0.1}}, "only fixed values"),
        ({"space": {"depth": ensgap.integer(1, 3)}}, "depth is neither one of training"),
        ({"space": {"lr": ensgap.uniform(-1, 1)}}, "lr must be a number above 0"),
        ({"bogus": 1}, "tune has no option bogus"),
        ({"objective": "rmse"}, "^objective rmse is not for a classification"),
        ({"members": 1}, "^members must be at least 2"),
        ({"search": "bayes"}, "^search is optuna, random or grid"),
        ({"search": "grid", "space": space}, "has no grid"),
        ({"task": make_task(network=lambda: nn.Linear(4, 2))}, "3"),
        ({"task": make_task(network=lambda: nn.Linear(5, 3))}, "shape|size"),
        ({"task": make_task(network=lambda: 3)}, "must return a torch.nn.Module"),  # type: ignore[arg-type,return-value]
        ({"task": make_task(network=nn.ReLU)}, "no parameters"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    given = {"task": make_task(), "space": {"lr": ensgap.log(1e-3, 1e-1)}, "out": tmp_path / "out"} | SMALL | change
    with pytest.raises(UserError, match=words) as error:
        ensgap.tune(**given)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> TuneResult:
    return ensgap.tune(make_task(), space, out=tmp_path_factory.mktemp("tune") / "study", **SMALL)


@pytest.mark.slow
def test_both_optima_are_whole_configurations_and_the_gap_has_its_uncertainty(result: TuneResult) -> None:
    assert result.h_ind.keys() >= {"optimizer", "lr", "width", "batch_size"}
    assert ("momentum" in result.h_ens) == (result.h_ens["optimizer"] == "sgd")
    usable = result.trials.query("status == 'finished'")
    assert usable.sort_values("ensemble_nll").lr.iloc[0] == result.h_ens["lr"]
    assert usable.sort_values("avg_member_nll").lr.iloc[0] == result.h_ind["lr"]
    assert len(result.trials) == 5
    gap = result.gap.nll
    assert gap.low <= gap.mean <= gap.high
    assert "95% interval" in str(gap)
    assert "best for the ensemble" in result._repr_html_()
    with pytest.raises(AttributeError):
        _ = result.gap.nonsense


@pytest.mark.slow
def test_the_same_call_again_returns_at_once_and_other_data_is_refused(
    result: TuneResult, capfd: pytest.CaptureFixture[str]
) -> None:
    again = ensgap.tune(make_task(), space, out=result.folder.report, **SMALL)
    assert again.h_ens == result.h_ens
    assert again.gap.nll == result.gap.nll
    assert "Ray on" not in capfd.readouterr().out
    with pytest.raises(UserError, match="The data is not what the study"):
        ensgap.tune(make_task(X + 1), space, out=result.folder.report, **SMALL)
    with pytest.raises(UserError, match="epochs 3, not 4"):
        ensgap.tune(make_task(), space, out=result.folder.report, **(SMALL | {"epochs": 4}))


@pytest.mark.slow
def test_the_report_goes_where_it_is_wanted(result: TuneResult, tmp_path: Path) -> None:
    page = result.report(tmp_path / "report")
    assert page.stat().st_size > 0
    summary = json.loads((tmp_path / "report" / "summary.json").read_text())
    assert summary["h_ens"] == result.h_ens
    assert summary["command"].startswith("ensgap.tune('mine', space=function space, members=2")


@pytest.mark.slow
def test_the_ensemble_to_take_home(result: TuneResult, tmp_path: Path) -> None:
    ensemble = result.fit(which="ens", calibrate="joint")
    probs = ensemble.predict_proba(X)
    assert probs.shape == (150, 3)
    assert np.allclose(probs.sum(1), 1)
    assert ensemble.classes == ("blue", "green", "red")
    assert (ensemble.predict(X) == np.array(ensemble.classes)[probs.argmax(1)]).all()
    u = ensemble.uncertainty(X)
    assert np.allclose(u.total, u.aleatoric + u.epistemic)
    assert (u.epistemic >= -1e-9).all()
    assert np.allclose(u.total, -(probs * np.log(probs)).sum(1))
    assert ensemble.about["trained_on"] == 150
    assert result.fit(calibrate=None, data="pool").about["trained_on"] == 120
    ensemble.save(tmp_path / "model.safetensors")

    def network(width: int, dropout: float = 0.1) -> nn.Module:
        return result.task.network(width, dropout)  # type: ignore[attr-defined,no-any-return]

    loaded = ensgap.load(tmp_path / "model.safetensors", network=network)
    assert np.array_equal(loaded.predict_proba(X), probs)
    assert isinstance(loaded.predict_proba(torch.tensor(X)), torch.Tensor)
    with pytest.raises(UserError, match="do not fit the network"):
        ensgap.load(tmp_path / "model.safetensors", network=lambda: nn.Linear(4, 3))
    with pytest.raises(UserError, match=r"shape \[4\], however x has \[150, 3\]"):
        loaded.predict_proba(X[:, :3])
    with pytest.raises(UserError, match="There is no file"):
        ensgap.load(tmp_path / "nothing.safetensors", network=network)
    with pytest.raises(UserError, match="calibrate is one of"):
        result.fit(calibrate="joint_per_member")  # type: ignore[arg-type]


TASK_FILE = """
import numpy as np
import ensgap
from torch import nn

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

def task():
    y = np.arange(80) % 2
    x = np.random.default_rng(0).normal(size=(80, 4)) + y[:, None]
    return ensgap.Task.from_arrays("mine", x, y, network=Net)
"""


@pytest.mark.long
@pytest.mark.slow
def test_the_weight_decay_study_takes_a_task_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "my_task.py").write_text(TASK_FILE)
    status, output = run_study(tmp_path / "out", "--task", str(tmp_path / "my_task.py"), "--smoke")
    assert status == 0, output
    assert "On mine, weight decay" in output
    status, output = run_study(tmp_path / "out", "--task", str(tmp_path / "missing.py"), "--smoke")
    assert (status, "Traceback" in output) == (2, False)
    assert "There is no file" in output

"""The studies of a design from end to end, with a real local Ray: reports, resume, and what is not trained twice."""

import json
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import run_study, start_study

pytestmark = pytest.mark.slow
SMALL = ("--members", "3", "--replicates", "2", "--val-fractions", "0.1", "0.3")
STOPPING = (*SMALL, "--patience", "2", "--epochs", "40", "--lr", "0.01")


def summary(out: Path) -> dict[str, Any]:
    return dict(json.loads((out / "summary.json").read_text()))


def trials(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in out.glob("trials/*/trial.json")}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("designs") / "stopping"
    status, output = run_study(out, *STOPPING, study="early_stopping")
    assert status == 0, output
    return out


def test_early_stopping_compares_all_rules_in_all_holdouts(stopped: Path) -> None:
    found = summary(stopped)
    assert found["study"] == "early_stopping"
    assert [(cell["holdout"], cell["val_fraction"]) for cell in found["cells"]] == [
        (name, share) for name in ("shared", "overlapping", "disjoint") for share in (0.1, 0.3)
    ]
    for cell in found["cells"]:
        rules = set(cell["test"])
        both = {"individual", "shared_epoch"}
        joint = {"joint", *(f"{r}_then_temperature{p}" for r in (*both, "joint") for p in ("", "_prior"))}
        joint = set() if cell["holdout"] == "disjoint" else joint
        assert rules == both | joint
        nll = cell["test"]["individual"]["ensemble_nll"]["mean"]
        assert nll < cell["test"]["individual"]["avg_member_nll"]["mean"]
        if joint:
            expected = nll - cell["test"]["joint"]["ensemble_nll"]["mean"]
            assert cell["gap"]["nll"]["mean"] == pytest.approx(expected)
    for name in ("report.md", "tables/ensemble_nll.tex", "tables/then_temperature.csv", "figures/extra.pdf"):
        assert (stopped / name).stat().st_size > 0


@pytest.mark.long
def test_killed_and_resumed_equals_uninterrupted(stopped: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    process = start_study(out, *STOPPING, study="early_stopping")
    deadline = time.monotonic() + 120
    while len(trials(out)) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    kept = trials(out)
    assert 2 <= len(kept) < 6
    status, output = run_study(out, *STOPPING, "--resume", study="early_stopping")
    assert status == 0, output
    assert (out / "figures.csv").read_bytes() == (stopped / "figures.csv").read_bytes()
    assert kept.items() <= trials(out).items()


@pytest.mark.long
def test_a_larger_design_and_another_study_of_the_folder_train_only_what_is_new(stopped: Path, tmp_path: Path) -> None:
    out = tmp_path / "grown"
    shutil.copytree(stopped, out)
    before = trials(out)
    flags = [*STOPPING]
    flags[flags.index("--val-fractions") + 1 : flags.index("--val-fractions") + 3] = ["0.1", "0.2", "0.3"]
    status, output = run_study(out, *flags, "--resume", study="early_stopping")
    assert status == 0, output
    assert "/3  holdout" in output
    assert before.items() <= trials(out).items()
    assert len(summary(out)["cells"]) == 9

    # BatchEnsemble's deep-ensemble baseline is a trial that early stopping has trained
    before = trials(out)
    own = ("--val-fractions", "0.3", "--holdouts", "shared", "disjoint", "--inits", "sign")
    fast = [*STOPPING[:4], *STOPPING[7:], *own]
    status, output = run_study(out, *fast, study="batch_ensemble")
    assert status == 0, output
    assert len(trials(out)) == len(before) + 2
    found = summary(out / "batch_ensemble")
    cells = {(cell["init"], cell["holdout"]): cell for cell in found["cells"]}
    assert list(cells) == [("none", "shared"), ("sign", "shared"), ("sign", "disjoint")]
    assert cells["sign", "disjoint"]["leak"]["mean"] is not None
    assert cells["sign", "shared"]["parameters"] < cells["none", "shared"]["parameters"]
    status, output = run_study(out, *fast, "--resume", study="batch_ensemble")
    assert (status, "Ray on" in output) == (0, False)


def test_temperature_at_the_optimum_of_a_weight_decay_study(finished_study: Path, tmp_path: Path) -> None:
    out = tmp_path / "temperature"
    flags = ("--smoke", "--holdouts", "shared", "overlapping", "disjoint", "--from", str(finished_study))
    status, output = run_study(out, *flags, study="temperature")
    assert status == 0, output
    assert "individual temperatures only" in output
    assert summary(out)["config"]["weight_decay"] == summary(finished_study)["h_ind"]["weight_decay"]
    for cell in summary(out)["cells"]:
        joint = set() if cell["holdout"] == "disjoint" else {"joint", "joint_per_member", "pooled"}
        plain = {"individual"} | joint
        assert set(cell["test"]) == {"none"} | plain | {f"{name}_prior" for name in plain}
        if joint:
            assert cell["test"]["pooled"]["ensemble_error"] == cell["test"]["none"]["ensemble_error"]
    for name in ("tables/ensemble_nll.tex", "tables/all_scalings_shared.csv", "figures/sweep.png", "report.html"):
        assert (out / name).stat().st_size > 0
    status, output = run_study(tmp_path / "x", "--from", str(out), study="temperature")
    assert (status, "Traceback" in output) == (2, False)
    assert "holds a temperature study" in output

"""Whole studies with a real local Ray: outputs, resume after `kill -9`, Optuna, and what the search may see."""

import json
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from ensgap.plans.weight_decay import WeightDecayConfig
from ensgap.points import TensorPoints
from ensgap.search.weight_decay import weight_decay_study
from ensgap.tasks import TASKS, TaskData
from ensgap.tasks import digits as digits_task
from tests.conftest import GRID, STUDY, lines, run_study, start_study

pytestmark = pytest.mark.slow


def ended(out: Path, phase: str = "search") -> int:
    return len(list(out.glob(f"trials/{phase}-*/trial.json")))


def kill_in_mid_search(out: Path, *flags: str, after: int) -> None:
    process = start_study(out, *flags)
    deadline = time.monotonic() + 120
    while ended(out) < after and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert ended(out, "test") == 0
    assert not (out / "summary.json").exists()


def test_summary_of_a_finished_study(finished_study: Path) -> None:
    summary = json.loads((finished_study / "summary.json").read_text())
    assert summary["study"] == "weight_decay"
    assert summary["settings_tried"] == 7
    assert summary["diverged"] == [{"weight_decay": 1e9}]
    assert summary["h_ind"] != {"weight_decay": 1e9} != summary["h_ens"]
    for metric in ("nll", "error", "ece", "brier"):
        low, high = summary["gap"][metric]["ci95"]
        assert low <= summary["gap"][metric]["mean"] <= high
    nll = {side: summary["test"][side]["ensemble_nll"]["mean"] for side in ("ind", "ens")}
    assert summary["gap"]["nll"]["mean"] == pytest.approx(nll["ind"] - nll["ens"])
    assert nll["ens"] < summary["test"]["ens"]["avg_member_nll"]["mean"]
    assert summary["command"].startswith("python ")
    for file in ("report.md", "report.html", "trials.csv", "tables/gap.tex", "figures/nll.pdf", "figures/size.png"):
        assert (finished_study / file).stat().st_size > 0


def test_killed_and_resumed_equals_uninterrupted(finished_study: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    kill_in_mid_search(out, *STUDY, *GRID, after=2)
    kept = {path: path.stat().st_mtime_ns for path in out.glob("trials/search-*/trial.json")}
    assert 2 <= len(kept) < 7
    status, output = run_study(out, *STUDY, *GRID, "--resume")
    assert status == 0, output
    assert lines(out / "trials.csv") == lines(finished_study / "trials.csv")
    assert lines(out / "tables/test.csv") == lines(finished_study / "tables/test.csv")
    assert all(path.stat().st_mtime_ns == when for path, when in kept.items())


@pytest.mark.long
def test_optuna_killed_and_resumed_keeps_what_it_suggested(finished_study: Path, tmp_path: Path) -> None:
    flags = (*STUDY, "--grid", "0", "1e-4", "1e-3", "1e-2", "--search", "optuna", "--num-samples", "9")
    out = tmp_path / "optuna"
    kill_in_mid_search(out, *flags, after=3)
    before = {path.parent.name for path in out.glob("trials/search-*/trial.json")}
    status, output = run_study(out, *flags, "--resume")
    assert status == 0, output
    assert before <= {path.parent.name for path in out.glob("trials/search-*/trial.json")}
    rows = {line.split(",")[0]: line for line in lines(out / "trials.csv")[1:]}
    reference = {line.split(",")[0]: line for line in lines(finished_study / "trials.csv")[1:]}
    assert len(rows) == 9
    for value in ("0.0", "0.0001", "0.001", "0.01"):
        assert rows[value] == reference[value]


def test_a_finished_study_is_not_overwritten_and_resumes_at_once(finished_study: Path, tmp_path: Path) -> None:
    out = tmp_path / "copy"
    shutil.copytree(finished_study, out)
    before = (out / "trials.csv").read_bytes()
    status, output = run_study(out, *STUDY, *GRID)
    assert (status, "--resume" in output, "Traceback" in output) == (2, True, False)
    status, output = run_study(out, *STUDY, *GRID, "--resume")
    assert status == 0
    assert "Ray on" not in output  # nothing was left to train, so Ray was not even started
    assert (out / "trials.csv").read_bytes() == before
    status, output = run_study(out, "--members", "4", *STUDY[2:], *GRID, "--resume")
    assert status == 2
    assert "members 3, not 4" in output


def test_ctrl_c_keeps_finished_trials_and_says_how_to_go_on(tmp_path: Path) -> None:
    out = tmp_path / "interrupted"
    process = start_study(out, *STUDY, "--epochs", "200", *GRID)
    while ended(out) < 1 and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "Continue with:" in output
    assert "--resume" in output
    assert "Traceback" not in output
    assert ended(out) >= 1


@dataclass(frozen=True)
class GuardedPoints(TensorPoints):
    """Test points that cannot leave the driver before the whole search has ended."""

    folder: Path = Path()
    trials: int = 0

    def __reduce__(self) -> tuple[Any, ...]:
        assert ended(self.folder) == self.trials, "the search must not see the test data"
        return TensorPoints, (self.inputs, self.labels)


def test_search_trials_get_no_test_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, out = TASKS["digits"], tmp_path / "guarded"

    def load(data_dir: Path | None) -> TaskData:
        data = digits_task.load(data_dir)
        test: Any = data.test
        return TaskData(data.pool, GuardedPoints(test.inputs, test.labels, out, trials=3))

    monkeypatch.setitem(TASKS, "digits", type(real)(**{**real.__dict__, "load": load}))
    results = weight_decay_study(WeightDecayConfig(smoke=True, out=out))
    assert ended(out, "test") >= 1
    assert len(results.trials) == 3
    with pytest.raises(AssertionError, match="must not see"):
        torch.save(GuardedPoints(torch.zeros(1), torch.zeros(1), tmp_path, trials=99), tmp_path / "x")

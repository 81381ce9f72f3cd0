"""How far a study is, from its files alone, in every state that a folder can be in."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ensgap.folder import StudyFolder, write_json
from ensgap.status import SILENCE, look, main, tell
from tests.conftest import ROOT

NOW = time.time()
SEARCH = {
    "study": "weight_decay",
    "task": "digits",
    "epochs": 40,
    "num_samples": 10,
    "replicates": 5,
    "replicates_per_trial": 5,
}
DESIGN = {"study": "early_stopping", "task": "digits", "epochs": 1000, "patience": 10, "replicates": 5}


def study(path: Path, config: dict[str, Any], **more: Any) -> StudyFolder:
    content = {"config": config, "command": "python studies/x.py", "seconds": 125.0} | more
    write_json(path / "study.json", content)
    return StudyFolder(path)


def ended(path: Path, key: str, nll: float = 0.2, status: str = "finished") -> None:
    identity = {"setting": {"weight_decay": 1e-3}, "replicates": [0]}
    validation = {"avg_member_nll": nll, "ensemble_nll": nll / 2}
    record = {"identity": identity, "status": status, "epochs": 40, "seconds": 20.0, "validation": validation}
    write_json(path / "trials" / key / "trial.json", record | {"files": [], "details": {}})


def begun(path: Path, key: str, epoch: int = 10, seconds: float = 5.0) -> None:
    progress = {"epoch": epoch, "seconds": seconds, "time": NOW - 3, "ensemble_nll": 0.25}
    write_json(path / "trials" / key / "progress.json", progress)


def driver(path: Path, state: str = "running", phase: str = "search", ago: float = 2.0, **more: int) -> None:
    content = {"phase": phase, "ended": 0, "trials": 10, "at_once": 2, "host": "here", "pid": 7, "started": NOW - 100}
    write_json(path / "progress.json", content | {"state": state, "time": NOW - ago} | more)


def told(folder: StudyFolder) -> str:
    return "\n".join(tell(look(folder), NOW))


def test_a_running_search(tmp_path: Path) -> None:
    folder = study(tmp_path, SEARCH | {"test_replicates": 20})
    driver(tmp_path)
    ended(tmp_path, "search-weight_decay=0.001-a", 0.2)
    ended(tmp_path, "search-weight_decay=0.002-b", 0.1, "pruned")
    ended(tmp_path, "search-weight_decay=1-c", 0.3, "diverged")
    begun(tmp_path, "search-weight_decay=0.1-d")
    text = told(folder)
    assert "is running (process 7 on here, last sign of life 2 s ago)" in text
    assert "search   3 of 10 trials ended, 1 diverged, 1 pruned, 1 running" in text
    assert "test     0 of at most 8 trials ended" in text
    assert "epochs   130 of 720" in text
    assert "average member NLL 0.2000 at weight_decay=0.001" in text
    assert "weight_decay=0.1: epoch 10 of 40, ensemble NLL 0.2500 (3 s ago)" in text
    # 7 + 8 trials of 20 seconds, less the 5 that one has behind it, two at once
    assert look(folder).seconds_left() == pytest.approx((15 * 20 - 5) / 2)
    assert "end      in about 2 min" in text


def test_a_test_that_has_begun_says_how_many_trials_it_takes(tmp_path: Path) -> None:
    folder = study(tmp_path, SEARCH | {"test_replicates": 20})
    driver(tmp_path, phase="test", ended=1, trials=3)  # both optima are one, and one trial was there before
    for key in "ab":
        ended(tmp_path, f"test-weight_decay=0.001-{key}")
    begun(tmp_path, "test-weight_decay=0.001-c")
    text = told(folder)
    assert "test     2 of 4 trials ended, 1 running" in text


def test_before_the_first_trial_ended_the_running_ones_tell_the_pace(tmp_path: Path) -> None:
    folder = study(tmp_path, SEARCH | {"test_replicates": 5})
    driver(tmp_path)
    assert look(folder).seconds_left() is None
    begun(tmp_path, "search-weight_decay=0.1-d")  # half a second an epoch
    assert look(folder).seconds_left() == pytest.approx((12 * 20 - 5) / 2)


def test_a_killed_and_an_interrupted_study_say_how_to_go_on(tmp_path: Path) -> None:
    folder = study(tmp_path, SEARCH | {"test_replicates": 5})
    begun(tmp_path, "search-weight_decay=0.1-d")
    assert "has trained nothing yet" in told(folder)
    driver(tmp_path, ago=SILENCE + 60)
    text = told(folder)
    assert "is not running (process 7 on here was last heard of 2 min ago)" in text
    assert "python studies/x.py --resume" in text
    assert "1 begun" in text
    assert "end  " not in text
    driver(tmp_path, "interrupted")
    assert "was interrupted" in told(folder)


def test_a_finished_study(tmp_path: Path) -> None:
    folder = study(tmp_path, SEARCH | {"test_replicates": 5})
    ended(tmp_path, "search-weight_decay=0.001-a")
    ended(tmp_path, "test-weight_decay=0.001-b")
    driver(tmp_path, "ended", "search")
    (tmp_path / "summary.json").write_text("{}")
    os.utime(tmp_path / "summary.json", (NOW, NOW))
    text = told(folder)
    assert "is finished, after 2 min." in text
    assert "test     1 of 1 trials ended" in text
    driver(tmp_path, ago=-1)  # it was extended, and runs again
    assert "is running" in told(folder)


def test_a_study_of_a_design_knows_its_trials_by_name(tmp_path: Path) -> None:
    keys = [f"holdout-weight_decay=0,holdout={i}-x" for i in range(3)]
    folder = study(tmp_path, DESIGN, trials=keys)
    driver(tmp_path, phase="holdout")
    ended(tmp_path, keys[0])
    begun(tmp_path, keys[1])
    ended(tmp_path, "holdout-of-another-study-x")
    text = told(folder)
    assert "holdout  1 of 3 trials ended, 1 running" in text
    assert "epochs" not in text.replace("epoch 10", "")
    assert look(folder).seconds_left() == pytest.approx((2 * 20 - 5) / 2)


def test_a_file_half_written_or_gone_does_not_matter(tmp_path: Path) -> None:
    folder = study(tmp_path, SEARCH | {"test_replicates": 5})
    driver(tmp_path)
    (tmp_path / "trials" / "search-x-1").mkdir(parents=True)
    (tmp_path / "trials" / "search-x-1" / "progress.json").write_text('{"epo')
    assert "0 of 10" in told(folder)


def test_a_folder_without_a_study_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(SystemExit) as stopped:
            main([str(folder)])
        assert stopped.value.code == 2
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.slow
def test_of_a_real_study_without_importing_ray(finished_study: Path) -> None:
    code = (
        f"import sys; from ensgap.status import main; main([{str(finished_study)!r}]); assert 'ray' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert b"is finished" in done.stdout
    best = json.loads((finished_study / "summary.json").read_text())["h_ens"]["weight_decay"]
    assert f"at weight_decay={best:.4g}" in done.stdout.decode()

"""What is published rebuilds its own report, is small, and says what the study says."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ensgap.errors import UserError
from ensgap.folder import StudyFolder
from ensgap.publish import publish, size_of
from ensgap.report import write_report
from tests.conftest import ROOT

REPORTED = ("report.md", "report.html", "summary.json", "trials.csv", "tables/test.csv", "tables/gap.tex")


@pytest.mark.slow  # the study takes a while
def test_a_published_study_rebuilds_itself(finished_study: Path, tmp_path: Path) -> None:
    destination = tmp_path / "published"
    publish(finished_study, destination)
    assert not (destination / "ray").exists()
    trials, small = (size_of(folder / "trials") for folder in (finished_study, destination))
    assert small < 0.7 * trials

    before = {name: (destination / name).read_bytes() for name in REPORTED}
    shutil.rmtree(destination / "tables")
    write_report(StudyFolder.of(destination))
    assert {name: (destination / name).read_bytes() for name in REPORTED} == before

    ours, theirs = (json.loads((folder / "summary.json").read_text()) for folder in (destination, finished_study))
    assert ours["h_ind"] == theirs["h_ind"] and ours["h_ens"] == theirs["h_ens"]
    assert ours["gap"]["nll"]["mean"] == pytest.approx(theirs["gap"]["nll"]["mean"], abs=1e-4)

    published = next(destination.glob("trials/*/predictions.npz"))
    stamp = published.stat().st_mtime_ns
    publish(finished_study, destination)  # again, as when a study goes on
    assert published.stat().st_mtime_ns == stamp

    study = json.loads((finished_study / "study.json").read_text())
    study["config"]["members"] += 1
    StudyFolder(tmp_path / "other").write_study(study)
    with pytest.raises(UserError, match="another study"):
        publish(tmp_path / "other", destination)


def test_a_folder_without_a_study_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ensgap.publish", str(tmp_path), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 2 and "holds no study" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()

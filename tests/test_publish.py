"""What is published rebuilds its own report, is small, and says what the study says."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ensgap.errors import UserError
from ensgap.folder import StudyFolder
from ensgap.predictions import Predictions
from ensgap.publish import publish, size_of
from ensgap.report import write_report
from ensgap.spec import FIRST_TEST_REPLICATE
from tests.conftest import ROOT
from tests.report.test_paper import study_of_nci1

REPORTED = ("report.md", "summary.json", "trials.csv", "tables/test.csv", "tables/gap.tex")


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


def test_an_older_study_learns_that_it_repeats_the_paper(tmp_path: Path) -> None:
    folder = study_of_nci1(tmp_path / "study")
    study = folder.read_study()
    del study["config"]["as_paper"]
    machine = f"--out {tmp_path} --cluster --data-dir={tmp_path}"
    command = f"python studies/weight_decay.py {machine} --task nci1 --grid 0 1e-3"
    folder.write_study(study | {"storage": "s3://studies/here", "command": command})
    published = publish(tmp_path / "study", tmp_path / "published")
    assert (tmp_path / "published" / "tables" / "paper.csv").exists()
    assert not [*published.local.glob("figures/*.pdf")] and [*published.local.glob("figures/*.png")]
    assert published.read_study()["command"] == "python studies/weight_decay.py --task nci1 --grid 0 1e-3"
    for file in published.local.rglob("*.json"):
        assert str(tmp_path) not in file.read_text() and "s3://" not in file.read_text()


def test_an_unfinished_study_is_published_as_soon_as_it_has_a_report(tmp_path: Path) -> None:
    source = study_of_nci1(tmp_path / "study").local
    hidden = {path: path.read_bytes() for path in source.glob("trials/test-*/trial.json")}
    for path in hidden:
        path.unlink()
    with pytest.raises(UserError, match=rf"{source} has not tested .* continue it with --resume"):
        publish(source, tmp_path / "published")
    assert not (tmp_path / "published").exists()
    for path, content in hidden.items():
        if json.loads(content)["identity"]["replicates"] != [FIRST_TEST_REPLICATE + 2]:
            path.write_bytes(content)
    publish(source, tmp_path / "published")
    assert "Unfinished: 2 of 3 test replicates" in (tmp_path / "published" / "report.md").read_text()
    next(source.glob("trials/search-*/trial.json")).unlink()
    with pytest.raises(UserError, match="lack replicates"):
        write_report(StudyFolder(source))


def test_large_test_data_is_thinned_out(tmp_path: Path) -> None:
    study_of_nci1(tmp_path / "study")
    publish(tmp_path / "study", tmp_path / "published", test_points=60)
    publish(tmp_path / "study", tmp_path / "published", test_points=50)
    whole, thin = (
        Predictions.load(next((tmp_path / name).glob("trials/test-*/*.npz"))) for name in ("study", "published")
    )
    assert thin.labels.shape[1] == 50 and bool((thin.labels == whole.labels[:, thin.index[0]]).all())
    assert "Published with 50 of the 822 test points" in (tmp_path / "published" / "report.md").read_text()
    search = next((tmp_path / "published").glob("trials/search-*/*.npz"))
    assert Predictions.load(search).labels.shape == (1, 80)


def test_a_folder_without_a_study_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ensgap.publish", str(tmp_path), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 2 and "holds no study" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()

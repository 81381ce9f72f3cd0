"""Folders and buckets behave alike: a real S3 server on loopback, fsspec's memory, and the disk."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ensgap.errors import UserError
from ensgap.folder import StudyFolder
from ensgap.predictions import Predictions
from ensgap.search.run import TrialRun
from ensgap.spec import TrialSpec
from ensgap.storage import Place, open_place, write_whole
from ensgap.tasks import get_task
from tests.conftest import s3_server

TASK = get_task("digits")
DATA = TASK.load(None)


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture(params=["folder", "bucket", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "folder":
        return open_place(tmp_path / "a" / "b")
    if request.param == "memory":
        return open_place(f"memory://{tmp_path.name}/b")
    address: str = request.getfixturevalue("bucket")
    return open_place(address) / tmp_path.name


def test_files_come_back_and_are_found(place: Place) -> None:
    assert not place.exists()
    with pytest.raises(FileNotFoundError):
        (place / "x").read_bytes()
    for name in ("search-1/trial.json", "search-2/trial.json", "search-2/other", "test-1/trial.json"):
        write_whole(place / "trials" / name, name.encode())
    write_whole(place / "trials" / "search-1/trial.json", b"again")
    assert (place / "trials" / "search-1/trial.json").read_bytes() == b"again"
    found = [*(place / "trials").glob("search-*/trial.json")]
    assert sorted(file.parent.name for file in found) == ["search-1", "search-2"]
    found[0].unlink()
    found[0].unlink(missing_ok=True)
    assert not found[0].exists()
    with pytest.raises(FileNotFoundError):
        found[0].unlink()


def test_a_trial_is_trained_continued_and_kept_anywhere(place: Place, spec: TrialSpec) -> None:
    folder = StudyFolder(place)
    assert folder.find(spec) is None
    next(TrialRun(spec, TASK, DATA.pool, None, folder, checkpoint_every=1).reports(every=1))
    again = TrialRun(spec, TASK, DATA.pool, None, folder)
    assert again.training.epoch == 1
    list(again.reports(every=2))
    assert [record.status for record, _ in folder.ended_trials("search")] == ["finished"]
    assert Predictions.load(folder.trial_path(spec) / "predictions.npz").identity == spec.identity()
    assert not (folder.trial_path(spec) / "checkpoint.pt").exists()


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_whole(tmp_path / "x", b"before")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "x", b"after")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("x", b"before")]


def test_what_is_shown_of_a_bucket_has_no_password(bucket: str) -> None:
    place = open_place(bucket) / "x"
    assert ":***@" in str(place)
    assert "hush" not in f"{place} {place!r}"


@pytest.mark.parametrize("address", ["nothing://x/y", "s3://"])
def test_an_address_that_cannot_be_opened(address: str) -> None:
    with pytest.raises(UserError, match="cannot be opened"):
        open_place(address)


def test_a_bucket_study_needs_its_own_folder_for_reports(bucket: str, tmp_path: Path) -> None:
    folder = StudyFolder.of(open_place(bucket) / tmp_path.name, "weight_decay", tmp_path)
    folder.write_study({"config": {"study": "weight_decay"}})
    assert (folder.report, folder.local) == (tmp_path, tmp_path)
    other = StudyFolder.of(folder.path, "temperature", tmp_path)
    assert other.shares_trials
    assert str(other.trials) == str(folder.trials)
    assert other.report == tmp_path / "temperature"

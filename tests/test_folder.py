"""Nothing in a study's folder is unpickled."""

import pickle
import re
from pathlib import Path

import numpy as np
import pytest

from ensgap.errors import UserError
from ensgap.folder import CheckpointWarning, StudyFolder
from ensgap.predictions import Predictions
from ensgap.spec import TrialSpec
from tests.conftest import ROOT


class Malice:
    """Makes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.file,)


def test_malice_works_where_files_are_unpickled(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Malice(tmp_path / "done")))
    assert (tmp_path / "done").exists()


def test_a_malicious_checkpoint_is_not_executed(spec: TrialSpec, tmp_path: Path) -> None:
    path = tmp_path / "trials" / spec.key
    path.mkdir(parents=True)
    (path / "checkpoint.pt").write_bytes(pickle.dumps({"stack": Malice(tmp_path / "done")}))
    with pytest.warns(CheckpointWarning, match="starts anew"):
        assert StudyFolder(tmp_path).load_checkpoint(spec) is None
    assert not (tmp_path / "done").exists()


def test_malicious_predictions_are_not_executed(tmp_path: Path) -> None:
    np.savez(tmp_path / "predictions.npz", logits=np.array([Malice(tmp_path / "done")], dtype=object))
    with pytest.raises(UserError, match="damaged"):
        Predictions.load(tmp_path / "predictions.npz")
    assert not (tmp_path / "done").exists()


def test_no_code_reads_pickles() -> None:
    for file in (ROOT / "ensgap").rglob("*.py"):
        text = file.read_text()
        assert not re.search(r"pickle\.loads?\(|Unpickler|Tuner\.restore|read_pickle|joblib", text), file
        for call in re.findall(r"torch\.load\(.*", text):
            assert "weights_only=True" in call, file
        for call in re.findall(r"np\.load\(.*", text):
            assert "allow_pickle=False" in call, file

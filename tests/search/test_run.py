"""One trial without Ray: what it keeps, how it continues, how it diverges."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ensgap.folder import CheckpointWarning, StudyFolder, TrialRecord, write_json
from ensgap.losses import hopeless
from ensgap.predictions import Predictions
from ensgap.pruning import Curve
from ensgap.search.rivals import Rivals
from ensgap.search.run import TrialRun
from ensgap.spec import TrialSpec
from ensgap.tasks import get_task

TASK = get_task("digits")
DATA = TASK.load(None)


def predictions_of(folder: StudyFolder, spec: TrialSpec) -> Predictions:
    return Predictions.load(folder.trial_path(spec) / "predictions.npz")


def test_a_finished_trial_leaves_its_predictions_and_a_record(spec: TrialSpec, tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    assert folder.find(spec) is None
    reports = list(TrialRun(spec, TASK, DATA.pool, None, folder).reports(every=2))
    assert [r["epoch"] for r in reports] == [2, 4]
    assert [r["done"] for r in reports] == [False, True]
    record = folder.find(spec)
    assert record is not None
    assert record.status == "finished"
    assert record.validation["ensemble_nll"] == reports[-1]["ensemble_nll"] < reports[-1]["avg_member_nll"]
    p = predictions_of(folder, spec)
    assert p.logits.shape == (2, 2, 269, 10)
    assert p.identity == spec.identity()
    assert torch.equal(p.labels, DATA.pool.labels[p.index])
    assert p.held.all()


def test_test_trials_train_on_the_whole_pool_and_meet_the_test_data_once(spec: TrialSpec, tmp_path: Path) -> None:
    spec = replace(spec, phase="test", holdout=None)
    run = TrialRun(spec, TASK, DATA.pool, DATA.test, StudyFolder(tmp_path))
    assert run.training.train_index.shape == (4, 898)
    reports = list(run.reports(every=1))
    assert ["ensemble_nll" in r for r in reports] == [False, False, False, True]
    assert predictions_of(run.folder, spec).logits.shape == (2, 2, 899, 10)


def test_members_do_not_train_on_their_own_holdout(spec: TrialSpec, tmp_path: Path) -> None:
    run = TrialRun(replace(spec, members=4), TASK, DATA.pool, None, StudyFolder(tmp_path))
    for member, own in enumerate(run.training.train_index):
        held = run.held.flatten(0, 1)[member].nonzero().squeeze(1)
        assert not set(own.tolist()) & set(held.tolist())
        assert len(own) + len(held) == 898


def test_an_interrupted_trial_continues_from_its_checkpoint_bit_for_bit(spec: TrialSpec, tmp_path: Path) -> None:
    straight, broken = StudyFolder(tmp_path / "a"), StudyFolder(tmp_path / "b")
    list(TrialRun(spec, TASK, DATA.pool, None, straight).reports(every=1))
    first = TrialRun(spec, TASK, DATA.pool, None, broken, checkpoint_every=1).reports(every=1)
    next(first), next(first)
    second = TrialRun(spec, TASK, DATA.pool, None, broken)
    assert [r["epoch"] for r in second.reports(every=1)] == [3, 4]
    assert torch.equal(predictions_of(straight, spec).logits, predictions_of(broken, spec).logits)
    assert not (broken.trial_path(spec) / "checkpoint.pt").exists()


def test_a_damaged_checkpoint_is_left_aside_with_a_warning(spec: TrialSpec, tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    next(TrialRun(spec, TASK, DATA.pool, None, folder, checkpoint_every=1).reports(every=1))
    path = tmp_path / "trials" / spec.key / "checkpoint.pt"
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    poor = io.BytesIO()
    torch.save(torch.load(io.BytesIO(whole)) | {"training": {"epoch": 3}}, poor)
    for damaged in (whole[:1000], bytes(flipped), b"", poor.getvalue()):
        path.write_bytes(damaged)
        with pytest.warns(CheckpointWarning, match="starts anew"):
            run = TrialRun(spec, TASK, DATA.pool, None, folder)
        assert run.training.epoch == 0
    path.write_bytes(whole)
    assert TrialRun(spec, TASK, DATA.pool, None, folder).training.epoch == 1


def test_a_diverged_trial_is_recorded_with_finite_objectives_and_no_predictions(
    spec: TrialSpec, tmp_path: Path
) -> None:
    spec, folder = replace(spec, setting={"weight_decay": 1e12}), StudyFolder(tmp_path)
    last = list(TrialRun(spec, TASK, DATA.pool, None, folder).reports(every=2))[-1]
    assert last["diverged"]
    assert last["done"]
    assert hopeless("classification").items() <= last.items()
    record = folder.find(spec)
    assert record is not None
    assert record.status == "diverged"
    assert not (folder.trial_path(spec) / "predictions.npz").exists()


def test_equal_seeds_share_initial_weights_across_settings(spec: TrialSpec, tmp_path: Path) -> None:
    a = TrialRun(spec, TASK, DATA.pool, None, StudyFolder(tmp_path))
    b = TrialRun(replace(spec, setting={"weight_decay": 0.0}), TASK, DATA.pool, None, StudyFolder(tmp_path))
    for name, value in a.training.stack.member_state(3).items():
        assert torch.equal(value, b.training.stack.member_state(3)[name])
    assert torch.equal(a.held, b.held)


def test_specs_that_differ_anywhere_have_folders_of_their_own(spec: TrialSpec) -> None:
    variants = [
        spec,
        replace(spec, seed=1),
        replace(spec, replicates=(0,)),
        replace(spec, setting={"weight_decay": 1.00001e-3}),
        replace(spec, train=replace(spec.train, lr=0.2)),
        replace(spec, phase="test", holdout=None),
    ]
    assert len({v.key for v in variants}) == len(variants)
    assert spec.key == "search-weight_decay=0.001-15001e166d"  # finished studies must find their trials again


def test_a_checkpoint_of_other_kernels_is_not_taken_up(spec: TrialSpec, tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    next(TrialRun(spec, TASK, DATA.pool, None, folder, kernels="loop", checkpoint_every=1).reports(every=1))
    assert TrialRun(spec, TASK, DATA.pool, None, folder, kernels="loop").training.epoch == 1
    assert TrialRun(spec, TASK, DATA.pool, None, folder, kernels="batched").training.epoch == 0


def test_validation_curves_are_kept_whole_over_an_interruption(spec: TrialSpec, tmp_path: Path) -> None:
    straight, broken = StudyFolder(tmp_path / "a"), StudyFolder(tmp_path / "b")
    list(TrialRun(spec, TASK, DATA.pool, None, straight).reports(every=1))
    first = TrialRun(spec, TASK, DATA.pool, None, broken, checkpoint_every=1).reports(every=1)
    next(first), next(first)
    list(TrialRun(spec, TASK, DATA.pool, None, broken).reports(every=1))
    records = [folder.find(spec) for folder in (straight, broken)]
    assert records[0] is not None and records[1] is not None
    curves = records[0].details["curves"]
    assert curves == records[1].details["curves"]
    assert curves["epoch"] == [1, 2, 3, 4]
    assert [len(row) for row in curves["ensemble_nll"]] == [2] * 4
    mean = sum(curves["ensemble_nll"][-1]) / 2
    assert mean == pytest.approx(records[0].validation["ensemble_nll"])


def test_a_beaten_trial_stops_and_is_recorded_as_pruned(spec: TrialSpec, tmp_path: Path) -> None:
    folder, seen = StudyFolder(tmp_path), []

    def beaten(curve: Curve) -> bool:
        seen.append(curve.epochs)
        return len(curve.epochs) == 2

    run = TrialRun(spec, TASK, DATA.pool, None, folder, prune=beaten)
    reports = list(run.reports(every=1))
    assert [(r["epoch"], r["pruned"], r["done"]) for r in reports] == [(1, False, False), (2, True, True)]
    assert seen == [(1,), (1, 2)]
    record = folder.find(spec)
    assert record is not None
    assert (record.status, record.epochs, record.files) == ("pruned", 2, [])
    assert record.validation["ensemble_nll"] == reports[-1]["ensemble_nll"]
    assert record.details["curves"]["epoch"] == [1, 2]


def test_a_running_trial_says_how_far_it_is(spec: TrialSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensgap.search.run.NOTE_SECONDS", 0.0)
    folder = StudyFolder(tmp_path)
    reports = TrialRun(spec, TASK, DATA.pool, None, folder).reports(every=2)
    next(reports)
    file = folder.trial_path(spec) / "progress.json"
    progress = json.loads(file.read_bytes())
    assert progress["epoch"] == 2
    assert 0 < progress["ensemble_nll"] < progress["avg_member_nll"]
    list(reports)
    assert not file.exists()


def test_rivals_are_comparable_trials_that_finished(spec: TrialSpec, tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    curves = {"epoch": [1, 2, 4], "a": [[0.5, 0.51], [0.3, 0.31], [0.2, 0.21]]}
    bad = {"epoch": [1, 2, 4], "a": [[2.0, 2.1]] * 3}
    hopeless = Curve.of({"epoch": [1, 2], "a": [[1.9, 2.0], [1.9, 2.0]]})

    def put(weight_decay: float, found: dict[str, Any], **changes: Any) -> None:
        other = replace(spec, setting={"weight_decay": weight_decay}, **changes)
        details = {"curves": found}
        record = TrialRecord(other.identity(), "finished", 4, 1.0, {}, files=[], details=details)
        write_json(folder.trial_path(other) / "trial.json", record.__dict__)

    rivals = Rivals(folder, ("a",))
    for weight_decay in (0.1, 0.2, 0.3):
        put(weight_decay, curves)
        put(weight_decay + 1, bad, replicates=(5, 6))  # of other replicates
    assert not rivals.beat(spec, 4, hopeless)  # it is the worst of those it can be compared with
    put(0.4, bad)
    assert rivals.beat(spec, 4, hopeless)
    assert not rivals.beat(spec, 8, hopeless)  # they were trained for fewer epochs

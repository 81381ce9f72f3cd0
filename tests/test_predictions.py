"""Predictions on disk: complete, without pickle, whole or not at all."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ensgap.errors import UserError
from ensgap.predictions import Predictions

STEP = 1 / 32


def some() -> Predictions:
    held = torch.tensor([[[True, False, True], [False, True, True]]])
    return Predictions(
        torch.randn(1, 2, 3, 4), torch.tensor([[0, 3, 1]]), held, torch.tensor([[7, 8, 9]]), {"task": "t"}
    )


def test_saved_and_loaded_are_equal(tmp_path: Path) -> None:
    before = some()
    before.save(tmp_path / "deep" / "predictions.npz")
    after = Predictions.load(tmp_path / "deep" / "predictions.npz")
    for name in ("logits", "labels", "held", "index"):
        assert torch.equal(getattr(before, name), getattr(after, name))
    assert after.identity == {"task": "t"}
    assert [f.name for f in (tmp_path / "deep").iterdir()] == ["predictions.npz"]
    with np.load(tmp_path / "deep" / "predictions.npz", allow_pickle=False) as file:
        assert all(file[name].dtype != object for name in file.files)


def test_small_files_lose_nothing_but_digits_of_the_logits(tmp_path: Path) -> None:
    before = replace(some(), index=some().index + 70_000)
    before.save(tmp_path / "small.npz", STEP)
    after = Predictions.load(tmp_path / "small.npz")
    for name in ("labels", "held", "index"):
        assert torch.equal(getattr(before, name), getattr(after, name))
        assert getattr(before, name).dtype == getattr(after, name).dtype
    relative = before.logits - before.logits[..., -1:]
    assert torch.equal(after.logits, (relative / STEP).round() * STEP)
    torch.testing.assert_close(after.logits.softmax(-1), before.logits.softmax(-1), atol=1e-2, rtol=0)
    with np.load(tmp_path / "small.npz", allow_pickle=False) as file:
        assert (file["labels"].dtype, file["index"].dtype) == (np.int8, np.int32)


def test_small_files_have_larger_steps_where_logits_are_large(tmp_path: Path) -> None:
    before = replace(some(), logits=torch.randn(1, 2, 3, 4) * 1500)
    before.save(tmp_path / "small.npz", STEP)
    relative = before.logits - before.logits[..., -1:]
    torch.testing.assert_close(Predictions.load(tmp_path / "small.npz").logits, relative, atol=0.3, rtol=0)


def test_small_files_of_a_regression_keep_both_outputs_and_infinite_logits_stay_numbers(tmp_path: Path) -> None:
    before = replace(some(), labels=torch.rand(some().labels.shape))
    before.save(tmp_path / "small.npz", STEP)
    assert torch.equal(Predictions.load(tmp_path / "small.npz").logits, before.logits.half().float())
    replace(some(), logits=torch.full_like(some().logits, torch.inf)).save(tmp_path / "large.npz", STEP)
    assert Predictions.load(tmp_path / "large.npz").logits.isfinite().all()


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "predictions.npz"
    with pytest.raises(UserError, match="no predictions at"):
        Predictions.load(path)
    some().save(path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(UserError, match="damaged"):
        Predictions.load(path)


def test_shapes_are_checked() -> None:
    with pytest.raises(ValueError, match="labels must have shape"):
        Predictions(torch.randn(1, 2, 3, 4), torch.zeros(1, 2), torch.ones(1, 2, 3).bool(), torch.zeros(1, 3))


def test_points_held_out_by_different_numbers_of_members_are_refused() -> None:
    with pytest.raises(ValueError, match="equally many"):
        _ = some().order

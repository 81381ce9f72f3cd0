"""The replay of --prune on full runs."""

from pathlib import Path

import numpy as np
import pytest

from ensgap.folder import StudyFolder, TrialRecord, write_json
from ensgap.pruning import Curve
from ensgap.replay import main, optima, read_curves, replay, replays

EPOCHS = tuple(range(4, 41, 4))


def made(level: float, seed: int) -> Curve:
    """Falls to its level, with a little noise of its own."""
    rng = np.random.default_rng(seed)
    fall = 1 + 2 * np.exp(-np.array(EPOCHS) / 8)
    noise = 0.005 * rng.normal(size=(1, 5))
    return Curve(EPOCHS, {name: (level * share * fall)[:, None] + noise for name, share in (("a", 1.0), ("b", 0.9))})


LEVELS = [0.2, 0.21, 0.25, 0.5, 0.9, 1.5, 0.8, 0.7, 1.0, 1.4]
CURVES = [made(level, i) for i, level in enumerate(LEVELS)]


def test_hopeless_trials_are_stopped_and_good_ones_never() -> None:
    stopped = replay(CURVES, range(10), workers=1)
    assert stopped
    assert set(stopped) <= {6, 7, 8, 9}
    assert all(epoch < 40 for epoch in stopped.values())


def test_all_at_once_nothing_is_known_in_time() -> None:
    assert replay(CURVES, range(10), workers=10) == {}


def test_in_no_order_is_an_optimum_lost() -> None:
    found = list(replays(CURVES, orders=20))
    assert len(found) == 60
    assert all(not outcome.lost for outcome in found)
    assert max(outcome.saved for outcome in found) > 0.1
    for outcome in found:
        spared = sum(40 - epoch for epoch in outcome.stopped.values())
        assert outcome.saved == pytest.approx(spared / 400)


def test_a_lost_optimum_would_be_told() -> None:
    late = Curve(EPOCHS, {name: rows.copy() for name, rows in made(0.8, 5).values.items()})
    for rows in late.values.values():
        rows[-1] = 0.01  # at the very end, as nothing before it
    curves = [*CURVES, late]
    assert optima(curves, range(11)) == {"a": 10, "b": 10}
    assert any(outcome.lost == ("a", "b") for outcome in replays(curves, orders=1, workers=[1]))


@pytest.mark.slow
def test_on_a_real_study(finished_study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    curves = read_curves(StudyFolder.of(finished_study))
    assert len(curves) == 6  # the seventh diverged
    assert all(curve.epochs == tuple(range(3, 31, 3)) for curve in curves)
    main([str(finished_study), "--orders", "3"])
    assert "0 of 3" in capsys.readouterr().out


def test_replicates_that_are_trials_of_their_own_are_joined(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    folder.write_study({"config": {"study": "weight_decay"}})
    for replicate in (0, 1):
        row = [0.5 + replicate, 0.25 + replicate]
        curves = {"epoch": [1, 2], "avg_member_nll": [[v] for v in row], "ensemble_nll": [[v / 2] for v in row]}
        identity = {"setting": {"weight_decay": 0.1}, "replicates": [replicate]}
        record = TrialRecord(identity, "finished", 2, 1.0, {}, files=[], details={"curves": curves})
        write_json(tmp_path / "trials" / f"search-{replicate}" / "trial.json", record.__dict__)
    (curve,) = read_curves(folder)
    assert curve.epochs == (1, 2)
    assert curve.values["ensemble_nll"].tolist() == [[0.25, 0.75], [0.125, 0.625]]


def test_a_folder_without_curves_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([str(tmp_path)])
    assert stopped.value.code == 2
    assert "has a validation curve" in capsys.readouterr().err

"""The searcher without Ray: order of points, two objectives, and continuing from the journal."""

from pathlib import Path

import optuna
from optuna.trial import TrialState

from ensgap.losses import hopeless
from ensgap.search.optuna_search import FixedPointsFirst, open_storage, two_objective_search

GRID = (0.0, 1e-4, 1e-3, 1e-2)


def answer(value: float) -> dict[str, float]:
    return {"avg_member_nll": value, "ensemble_nll": value / 2}


def trials_of(journal: Path) -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name="s", storage=open_storage(journal)).get_trials()


def test_fixed_points_then_the_grid_then_tpe_inside_the_grids_range(tmp_path: Path) -> None:
    searcher = two_objective_search(tmp_path / "j", "s", GRID, seed=0, ended=())
    both = FixedPointsFirst([{"weight_decay": 0.0}], searcher)
    seen = []
    for i in range(10):
        point = both.suggest(f"t{i}")
        assert point is not None
        seen.append(point["weight_decay"])
        both.on_trial_complete(f"t{i}", answer(seen[-1]))
    assert seen[:4] == list(GRID)
    assert all(1e-4 <= value <= 1e-2 for value in seen[4:])
    assert len(set(seen)) == 10
    trials = trials_of(tmp_path / "j")
    assert [t.state for t in trials] == [TrialState.COMPLETE] * 9
    assert all(len(t.values) == 2 for t in trials)


def test_a_diverged_trial_ends_in_optuna_too(tmp_path: Path) -> None:
    searcher = two_objective_search(tmp_path / "j", "s", GRID, seed=0, ended=())
    searcher.suggest("a")
    searcher.on_trial_complete("a", answer(hopeless("classification")["ensemble_nll"]))
    assert trials_of(tmp_path / "j")[0].state == TrialState.COMPLETE


def test_a_resumed_search_keeps_what_is_finished_and_suggests_the_rest_again(tmp_path: Path) -> None:
    searcher = two_objective_search(tmp_path / "j", "s", GRID, seed=0, ended=())
    for name in "abcd":
        searcher.suggest(name)
    searcher.on_trial_complete("a", answer(1.0))
    lost = trials_of(tmp_path / "j")[3].params["weight_decay"]  # chosen by TPE, and its process dies now
    again = two_objective_search(tmp_path / "j", "s", GRID, seed=0, ended=[1e-4])
    points = [again.suggest(name) for name in ("b2", "c2", "d2", "e2")]
    values = [point["weight_decay"] for point in points if point]
    assert values[:3] == [1e-3, 1e-2, lost]
    assert values[3] not in (*GRID, lost)


def test_a_failed_or_deleted_point_is_suggested_again(tmp_path: Path) -> None:
    searcher = two_objective_search(tmp_path / "j", "s", GRID, seed=0, ended=())
    for name in "abc":
        searcher.suggest(name)
    searcher.on_trial_complete("a", None, error=True)  # its worker died
    searcher.on_trial_complete("b", answer(1.0))  # ended, but its files were deleted since
    searcher.on_trial_complete("c", answer(2.0))
    again = two_objective_search(tmp_path / "j", "s", GRID, seed=0, ended=[1e-2])
    points = [again.suggest(name) for name in ("a2", "b2")]
    assert [point["weight_decay"] for point in points if point] == [1e-4, 1e-3]

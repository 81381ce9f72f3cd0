"""The searcher without Ray: order of points, two objectives, and continuing from the journal."""

from collections.abc import Sequence
from pathlib import Path

import optuna
from optuna.trial import TrialState
from ray.tune.search import Searcher

from ensgap.search.optuna_search import FixedPointsFirst, open_storage, two_objective_search
from ensgap.search.run import HOPELESS
from ensgap.search.weight_decay import between

GRID = (0.0, 1e-4, 1e-3, 1e-2)
POINTS = [{"weight_decay": value} for value in GRID]


def answer(value: float) -> dict[str, float]:
    return {"avg_member_nll": value, "ensemble_nll": value / 2}


def search(journal: Path, ended: Sequence[float] = ()) -> Searcher:
    tried = [{"weight_decay": value} for value in ended]
    return two_objective_search(journal, "s", between(1e-4, 1e-2), seed=0, ended=tried, first=POINTS[1:])


def suggested(searcher: Searcher, name: str) -> float:
    found = searcher.suggest(name)
    assert found is not None
    return float(found["point"]["weight_decay"])


def trials_of(journal: Path) -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name="s", storage=open_storage(journal)).get_trials()


def test_fixed_points_then_the_grid_then_tpe_inside_the_grids_range(tmp_path: Path) -> None:
    searcher = search(tmp_path / "j")
    both = FixedPointsFirst(POINTS[:1], searcher)
    seen = []
    for i in range(10):
        seen.append(suggested(both, f"t{i}"))
        both.on_trial_complete(f"t{i}", answer(seen[-1]))
    assert seen[:4] == list(GRID)
    assert all(1e-4 <= value <= 1e-2 for value in seen[4:])
    assert len(set(seen)) == 10
    trials = trials_of(tmp_path / "j")
    assert [t.state for t in trials] == [TrialState.COMPLETE] * 9
    assert all(len(t.values) == 2 for t in trials)


def test_a_diverged_trial_ends_in_optuna_too(tmp_path: Path) -> None:
    searcher = search(tmp_path / "j")
    searcher.suggest("a")
    searcher.on_trial_complete("a", answer(HOPELESS))
    assert trials_of(tmp_path / "j")[0].state == TrialState.COMPLETE


def test_a_resumed_search_keeps_what_is_finished_and_suggests_the_rest_again(tmp_path: Path) -> None:
    searcher = search(tmp_path / "j")
    for name in "abcd":
        searcher.suggest(name)
    searcher.on_trial_complete("a", answer(1.0))
    lost = trials_of(tmp_path / "j")[3].params["weight_decay"]  # chosen by TPE, and its process dies now
    again = search(tmp_path / "j", ended=[1e-4])
    values = [suggested(again, name) for name in ("b2", "c2", "d2", "e2")]
    assert values[:3] == [1e-3, 1e-2, lost]
    assert values[3] not in (*GRID, lost)


def test_a_failed_or_deleted_point_is_suggested_again(tmp_path: Path) -> None:
    searcher = search(tmp_path / "j")
    for name in "abc":
        searcher.suggest(name)
    searcher.on_trial_complete("a", None, error=True)  # its worker died
    searcher.on_trial_complete("b", answer(1.0))  # ended, but its files were deleted since
    searcher.on_trial_complete("c", answer(2.0))
    again = search(tmp_path / "j", ended=[1e-2])
    assert [suggested(again, name) for name in ("a2", "b2")] == [1e-4, 1e-3]

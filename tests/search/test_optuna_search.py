"""The searcher without Ray: order of points, two objectives, and continuing from the journal."""

import pickle
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from ensgap.errors import UserError
from ensgap.search.optuna_search import FixedPointsFirst, two_objective_search
from ensgap.search.optuna_storage import open_storage, study_name
from ensgap.search.run import HOPELESS

GRID = (0.0, 1e-4, 1e-3, 1e-2)


def answer(value: float) -> dict[str, float]:
    return {"avg_member_nll": value, "ensemble_nll": value / 2}


def trials_of(journal: Path) -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name="s", storage=open_storage(journal)).get_trials()


def test_fixed_points_then_the_grid_then_tpe_inside_the_grids_range(tmp_path: Path) -> None:
    searcher = two_objective_search(open_storage(tmp_path / "j"), "s", GRID, seed=0, ended={})
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
    searcher = two_objective_search(open_storage(tmp_path / "j"), "s", GRID, seed=0, ended={})
    searcher.suggest("a")
    searcher.on_trial_complete("a", answer(HOPELESS))
    assert trials_of(tmp_path / "j")[0].state == TrialState.COMPLETE


def test_a_resumed_search_keeps_what_is_finished_and_suggests_the_rest_again(tmp_path: Path) -> None:
    searcher = two_objective_search(open_storage(tmp_path / "j"), "s", GRID, seed=0, ended={})
    for name in "abcd":
        searcher.suggest(name)
    searcher.on_trial_complete("a", answer(1.0))
    lost = trials_of(tmp_path / "j")[3].params["weight_decay"]  # chosen by TPE, and its process dies now
    again = two_objective_search(open_storage(tmp_path / "j"), "s", GRID, seed=0, ended={1e-4: (1.0, 0.5)})
    points = [again.suggest(name) for name in ("b2", "c2", "d2", "e2")]
    values = [point["weight_decay"] for point in points if point]
    assert values[:3] == [1e-3, 1e-2, lost]
    assert values[3] not in (*GRID, lost)


def test_a_failed_or_deleted_point_is_suggested_again(tmp_path: Path) -> None:
    searcher = two_objective_search(open_storage(tmp_path / "j"), "s", GRID, seed=0, ended={})
    for name in "abc":
        searcher.suggest(name)
    searcher.on_trial_complete("a", None, error=True)  # its worker died
    searcher.on_trial_complete("b", answer(1.0))  # ended, but its files were deleted since
    searcher.on_trial_complete("c", answer(2.0))
    again = two_objective_search(open_storage(tmp_path / "j"), "s", GRID, seed=0, ended={1e-2: (2.0, 1.0)})
    points = [again.suggest(name) for name in ("a2", "b2")]
    assert [point["weight_decay"] for point in points if point] == [1e-4, 1e-3]


def test_what_the_folder_has_is_told_to_a_storage_that_lost_it(tmp_path: Path) -> None:
    ended = {0.0: (3.0, 1.5), 1e-4: (1.0, 0.5), 1e-3: (2.0, 1.0)}
    for _ in range(2):  # the second time it knows them
        searcher = two_objective_search(open_storage(tmp_path / "j"), "s", GRID, seed=0, ended=ended)
    told = [t for t in trials_of(tmp_path / "j") if t.state == TrialState.COMPLETE]
    assert {t.params["weight_decay"]: tuple(t.values) for t in told} == {1e-4: (1.0, 0.5), 1e-3: (2.0, 1.0)}
    assert searcher.suggest("a") == {"weight_decay": 1e-2}


def test_what_tune_pickles_has_no_address_in_it(tmp_path: Path) -> None:
    storage = open_storage(f"sqlite:///{tmp_path}/optuna.db")
    searcher = FixedPointsFirst([], two_objective_search(storage, "s", GRID, seed=0, ended={}))
    assert b"sqlite" not in pickle.dumps(searcher)


def test_a_storage_that_cannot_be_opened_is_named_without_its_password() -> None:
    with pytest.raises(UserError, match=r"me:\*\*\*@localhost.*cannot be opened") as error:
        open_storage("postgresql://me:pa55@localhost:1/db")
    assert "pa55" not in str(error.value)


def test_a_database_serves_many_studies_by_names_that_the_folders_keep(tmp_path: Path) -> None:
    assert study_name(tmp_path, "s", None) == "s"
    first = study_name(tmp_path / "a", "s", "postgresql://me:pa55@host/db")
    assert first == study_name(tmp_path / "a", "s", "postgresql://me:pa55@host/db")
    assert first != study_name(tmp_path / "b", "s", "postgresql://me:pa55@host/db")
    assert "pa55" not in (tmp_path / "a" / "optuna.json").read_text()

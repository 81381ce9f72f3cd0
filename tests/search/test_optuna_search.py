"""The searcher without Ray: order of points, two objectives, and continuing from the journal."""

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState
from ray.tune.search import Searcher

from ensgap.errors import UserError
from ensgap.hyperparameters import Setting
from ensgap.losses import hopeless
from ensgap.search.optuna_search import FixedPointsFirst, two_objective_search
from ensgap.search.optuna_storage import open_storage, study_name
from ensgap.search.weight_decay import between

GRID = (0.0, 1e-4, 1e-3, 1e-2)
POINTS: list[Setting] = [{"weight_decay": value} for value in GRID]


def answer(value: float) -> dict[str, float]:
    return {"avg_member_nll": value, "ensemble_nll": value / 2}


def search(where: Path | str, ended: Mapping[float, Sequence[float]] = {}) -> Searcher:
    tried: list[tuple[Setting, Sequence[float]]] = [({"weight_decay": value}, both) for value, both in ended.items()]
    return two_objective_search(open_storage(where), "s", between(1e-4, 1e-2), seed=0, ended=tried, first=POINTS[1:])


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
    searcher.on_trial_complete("a", answer(hopeless("classification")["ensemble_nll"]))
    assert trials_of(tmp_path / "j")[0].state == TrialState.COMPLETE


def test_a_resumed_search_keeps_what_is_finished_and_suggests_the_rest_again(tmp_path: Path) -> None:
    searcher = search(tmp_path / "j")
    for name in "abcd":
        searcher.suggest(name)
    searcher.on_trial_complete("a", answer(1.0))
    lost = trials_of(tmp_path / "j")[3].params["weight_decay"]  # chosen by TPE, and its process dies now
    again = search(tmp_path / "j", ended={1e-4: (1.0, 0.5)})
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
    again = search(tmp_path / "j", ended={1e-2: (2.0, 1.0)})
    assert [suggested(again, name) for name in ("a2", "b2")] == [1e-4, 1e-3]


def test_what_the_folder_has_is_told_to_a_storage_that_lost_it(tmp_path: Path) -> None:
    ended = {0.0: (3.0, 1.5), 1e-4: (1.0, 0.5), 1e-3: (2.0, 1.0)}
    for _ in range(2):  # the second time it knows them
        searcher = search(tmp_path / "j", ended=ended)
    told = [t for t in trials_of(tmp_path / "j") if t.state == TrialState.COMPLETE]
    assert {t.params["weight_decay"]: tuple(t.values) for t in told} == {1e-4: (1.0, 0.5), 1e-3: (2.0, 1.0)}
    assert suggested(searcher, "a") == 1e-2


def test_what_tune_pickles_has_no_address_in_it(tmp_path: Path) -> None:
    searcher = FixedPointsFirst([], search(f"sqlite:///{tmp_path}/optuna.db"))
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


def test_a_space_whose_parameters_depend_on_each_other_is_searched_and_continued(tmp_path: Path) -> None:
    def space(trial: optuna.Trial) -> Setting:
        optimizer = trial.suggest_categorical("optimizer", ["sgd", "adam"])
        setting: Setting = {"optimizer": optimizer, "lr": 10 ** trial.suggest_float("log_lr", -3, 0), "epochs": 5}
        return {**setting, "momentum": trial.suggest_float("momentum", 0, 1)} if optimizer == "sgd" else setting

    def searcher(ended: Sequence[tuple[Setting, Sequence[float]]] = ()) -> Searcher:
        return two_objective_search(open_storage(tmp_path / "j"), "s", space, seed=0, ended=ended)

    first = searcher()
    settings = [(first.suggest(f"t{i}") or {})["point"] for i in range(12)]
    assert all(setting.keys() >= {"optimizer", "lr", "epochs"} for setting in settings)
    assert all(("momentum" in setting) == (setting["optimizer"] == "sgd") for setting in settings)
    for i in range(10):
        first.on_trial_complete(f"t{i}", answer(settings[i]["lr"]))
    again = searcher([(setting, (1.0, 0.5)) for setting in settings[:10]])
    assert [(again.suggest(name) or {})["point"] for name in ("a", "b")] == settings[10:]
    assert (again.suggest("c") or {})["point"] not in settings

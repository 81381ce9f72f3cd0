"""What can be watched while trials run, with a real Ray: Prometheus' endpoint, names in the dashboard, TensorBoard."""

import json
import re
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.util.state import list_actors
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

from ensgap.errors import UserError
from ensgap.folder import StudyFolder
from ensgap.holdout import Holdout
from ensgap.search.gauges import FIGURES
from ensgap.search.session import LocalRay
from ensgap.search.tuner import Runner
from ensgap.spec import TrialSpec
from ensgap.tasks import get_task
from ensgap.train import TrainConfig
from tests.conftest import ROOT

pytestmark = pytest.mark.slow
TASK = get_task("digits")
VALUES = (1e-4, 1e-3, 1e-2)


@dataclass
class Watched:
    """A run, and what was seen of it."""

    folder: StudyFolder
    metrics: str
    beats: list[dict[str, Any]]
    actors: list[Any]
    runner: Runner
    specs: list[TrialSpec]


class Watcher(threading.Thread):
    """Collects what Prometheus would, until all figures of a trial were there."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder, self.text, self.done = folder, "", threading.Event()
        self.beats: list[dict[str, Any]] = []

    def run(self) -> None:
        port = ray.nodes()[0]["MetricsExportPort"]
        while not self.done.wait(0.3):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                text = answer.read().decode()
            if all(f"ray_ensgap_{name}{{" in text for name in FIGURES):
                self.text = text
            if (self.folder / "progress.json").exists():
                self.beats.append(json.loads((self.folder / "progress.json").read_text()))


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = StudyFolder(tmp_path_factory.mktemp("runs") / "mine")
    folder.write_study({"config": {"study": "mine"}})  # which workers look for
    base = TrialSpec("digits", "search", {}, 4, (0, 1), 0, TrainConfig(epochs=40), None)
    specs = [replace(base, setting={"weight_decay": value}, holdout=Holdout(4, 0.3)) for value in VALUES]
    with pytest.MonkeyPatch.context() as patch, LocalRay() as session:
        patch.setenv("RAY_metrics_report_interval_ms", "500")
        session.start()
        watcher = Watcher(folder.local)
        watcher.start()
        runner = Runner(folder, TASK, TASK.load(None).pool, session)
        runner.run_grid(specs)
        actors = list_actors(detail=True)
        watcher.done.set()
        watcher.join()
        yield Watched(folder, watcher.text, watcher.beats, actors, runner, specs)


def test_prometheus_gets_every_figure_of_every_trial_by_name(watched: Watched) -> None:
    for name in FIGURES:
        lines = re.findall(rf"^ray_ensgap_{name}{{(.*)}} (\S+)$", watched.metrics, re.MULTILINE)
        assert lines, name
        for tags, value in lines:
            assert 'study="mine"' in tags and 'task="digits"' in tags and 'phase="search"' in tags
            assert re.search(r'trial="search-weight_decay=[0-9.e-]+-[0-9a-f]{10}"', tags)
            assert float(value) >= 0


def test_workers_have_names_that_a_person_can_read(watched: Watched) -> None:
    names = {actor.repr_name for actor in watched.actors}
    assert "mine/search" in names, names


def test_the_driver_gives_signs_of_life_and_says_how_it_ended(watched: Watched) -> None:
    assert {beat["state"] for beat in watched.beats} >= {"running"}
    assert watched.beats[0]["trials"] == 3
    last = json.loads((watched.folder.local / "progress.json").read_text())
    assert last["state"] == "ended"


def test_tensorboard_reads_the_results_folder(watched: Watched) -> None:
    runs = [path for path in (watched.folder.local / "ray" / "search").iterdir() if path.is_dir()]
    assert sorted(path.name.rpartition("-")[0] for path in runs) == [f"weight_decay={v:.4g}" for v in sorted(VALUES)]
    for run in runs:
        events = EventAccumulator(str(run)).Reload()
        curve = events.Scalars("ray/tune/ensemble_nll")
        assert len(curve) == 10
        assert curve[-1].value < curve[0].value


def test_the_grafana_dashboard_asks_for_what_there_is(watched: Watched) -> None:
    dashboard = json.loads((ROOT / "studies" / "cluster" / "grafana.json").read_text())
    asked = {
        name for panel in dashboard["panels"] for target in panel["targets"] for name in metrics_of(target["expr"])
    }
    assert asked == {f"ray_ensgap_{name}" for name in FIGURES}
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            assert set(re.findall(r"(\w+)=~", target["expr"])) <= {"study", "task", "phase", "trial"}
    assert {variable["name"] for variable in dashboard["templating"]["list"]} == {
        "datasource",
        "study",
        "phase",
        "trial",
    }


def metrics_of(expression: str) -> list[str]:
    return re.findall(r"ray_ensgap_\w+", expression)


def test_a_trial_whose_worker_never_started_is_recorded_under_its_own_setting(watched: Watched, tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "other")  # without the study.json that workers look for
    with pytest.raises(UserError, match=r"2 of 2 trials failed .*no study\.json"):
        replace(watched.runner, folder=folder, retries=0).run_grid(watched.specs[:2])
    assert all(folder.find_failure(spec.key) for spec in watched.specs[:2])

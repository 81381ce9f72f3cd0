"""The paper's figures beside ours."""

import csv
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ensgap.folder import StudyFolder, TrialRecord
from ensgap.gap import Estimate
from ensgap.plans.weight_decay import WeightDecayConfig
from ensgap.report import write_report
from ensgap.report.paper import paper_figure, paper_weight_decay
from ensgap.report.paper_cells import PaperCell, paper_cards, paper_summary, sentence
from ensgap.report.weight_decay_paper import equal_cells, paper_cells
from ensgap.results.optima import read_results
from ensgap.tasks import get_task
from tests.report.test_design_reports import made


def test_cells_of_the_paper_are_found() -> None:
    cell = {"study": "temperature", "task": "nci1", "level": "ensemble", "holdout": "shared", "fraction": 0.01}
    assert paper_figure(setting="scaling=none", metric="error", **cell) == ("19.18", "0.18")  # type: ignore[arg-type]
    assert paper_figure(setting="scaling=pooled", metric="error", **cell) is None  # type: ignore[arg-type]
    found = paper_figure("batch_ensemble", "cifar10", "ensemble", "init=random_sign", "shared", 0.02, "epochs")
    assert found == ("39.69", "2.66")
    found = paper_figure("weight_decay", "nci1", "avg_member", "selected_by=joint", "shared", None, "nll")
    assert found == ("0.485", "0.006")
    assert paper_weight_decay("nci1", "selected_by=joint") == 0.00274
    assert paper_weight_decay("digits", "selected_by=joint") is None
    assert paper_weight_decay("nci1-128", "selected_by=joint") == 0.00274
    assert paper_figure("weight_decay", "nci1-128", "avg_member", "selected_by=joint", "shared", None, "nll") == found


def test_a_difference_is_counted_in_combined_sems() -> None:
    cell = PaperCell(("a",), Estimate(0.21, 0.003, 0, 1), ("20.00", "0.40"), 2, 100.0)
    assert cell.distance == pytest.approx(0.01 / 0.005)
    one = replace(cell, ours=Estimate(0.21, math.nan, math.nan, math.nan))
    assert math.isnan(one.distance)
    far = replace(cell, ours=Estimate(0.2101, 0.003, 0, 1))
    found = paper_summary([cell, one, far])["paper"]
    assert (found["cells"], found["within_2_combined_sem"]) == (2, 1)
    assert found["rows"][1]["sem"] is None and paper_summary([]) == {}
    low = replace(cell, ours=Estimate(0.18, 0.003, 0, 1))
    found = paper_summary([cell, one, far, low, low])["paper"]
    assert (found["higher"], found["lower"]) == (1, 2)
    assert sentence([cell, one, far, low, low]).endswith("of the paper's; of the others, 1 ours higher, 2 ours lower.")
    assert sentence([cell, one]) == "1 of 1 cells within 2 combined SEM of the paper's."
    assert paper_cards([cell, low])[0].below.endswith("of the others, 0 ours higher, 1 ours lower")


def study_of_nci1(path: Path, **flags: Any) -> StudyFolder:
    """A finished study, from made predictions, in which every weight decay was tested and 0 is the worst."""
    usual = {"grid": (0.0, 0.0005, 0.001), "also_test": (0.0,), "replicates": 2, "test_replicates": 3}
    config = WeightDecayConfig("nci1", preset="paper", **usual | flags)  # type: ignore[arg-type]
    plan, grid = config.plan(get_task("nci1")), config.grid or ()
    folder = StudyFolder(path)
    specs = [spec for value in grid for spec in plan.search_trials({"weight_decay": value})]
    specs += [spec for value in grid for spec in plan.test_trials({"weight_decay": value})]
    for spec in specs:
        seed = 1000 * spec.replicates[0] + (1 if spec.setting["weight_decay"] == 0.001 else 0)
        sharpness = 0.2 if spec.setting["weight_decay"] == 0 else 2.0
        predictions = made(spec, seed, points=80, sharpness=sharpness)
        folder.finish(spec, TrialRecord(spec.identity(), "finished", 9, 2.0, {}), {"predictions": predictions})
    sizes = {"pool": 3288, "test": 822, "notes": []}
    command = "python studies/weight_decay.py --task nci1"
    folder.write_study({"config": plan.to_json(), "data": sizes, "command": command, "versions": {}, "seconds": 1.0})
    return folder


def test_a_repeated_study_stands_beside_the_paper(tmp_path: Path) -> None:
    folder = study_of_nci1(tmp_path)
    write_report(folder)
    results = read_results(folder)
    rows = list(csv.DictReader((tmp_path / "tables" / "paper.csv").open()))
    assert len(rows) == 2 * 3 * 3
    row = next(r for r in rows if (r["level"], r["metric"], r["selected_by"]) == ("ensemble", "NLL", "no weight decay"))
    none = next(t for t in (*results.test.values(), *results.further) if t.weight_decay == 0)
    ours = none.estimate("ensemble_nll")
    assert (float(row["ours"]), float(row["paper"]), float(row["paper_sem"])) == (ours.mean, 0.741, 0.008)
    assert float(row["difference"]) == pytest.approx((ours.mean - 0.741) / math.hypot(ours.sem, 0.008))
    error = next(r for r in rows if r["metric"] == "Error (%)" and "h*_ind" in r["selected_by"])
    assert float(error["paper"]) == pytest.approx(0.1922) and error["paper_weight_decay"] == "0.00316"

    summary = json.loads((tmp_path / "summary.json").read_text())
    near = sum(abs(float(r["difference"])) <= 2 for r in rows)
    assert summary["paper"]["within_2_combined_sem"] == near and summary["paper"]["cells"] == 18
    above = sum(float(r["difference"]) > 2 for r in rows)
    said = f"{near} of 18 cells within 2 combined SEM of the paper's; of the others, {above} ours higher, "
    assert f"{said}{18 - near - above} ours lower." in (tmp_path / "report.md").read_text()
    further = list(csv.DictReader((tmp_path / "tables" / "further.csv").open()))
    assert "0" in {r["weight_decay"] for r in further}
    assert summary["further"][0]["test"]["ensemble_nll"]["mean"] == pytest.approx(ours.mean)


def test_the_papers_own_weight_decays_stand_beside_it_where_the_optima_are_others(tmp_path: Path) -> None:
    grid = (0.0, 0.0005, 0.001, 0.002738, 0.003162)
    folder = study_of_nci1(tmp_path, grid=grid)
    write_report(folder)
    results = read_results(folder)
    rows = list(csv.DictReader((tmp_path / "tables" / "paper_equal.csv").open()))
    assert len(rows) == 2 * 3 * 3
    assert {(r["weight_decay"], r["paper_weight_decay"]) for r in rows} == {
        ("0.003162", "0.00316"),
        ("0.002738", "0.00274"),
        ("0", "0"),
    }
    ours = next(t for t in (*results.test.values(), *results.further) if t.weight_decay == 0.002738)
    row = next(r for r in rows if (r["level"], r["metric"], r["paper_weight_decay"]) == ("ensemble", "NLL", "0.00274"))
    assert (float(row["ours"]), float(row["paper"])) == (ours.estimate("ensemble_nll").mean, 0.435)
    near = sum(abs(float(r["difference"])) <= 2 for r in rows)
    assert f"At the paper's own weight decays: {near} of 18 cells" in (tmp_path / "report.md").read_text()
    assert json.loads((tmp_path / "summary.json").read_text())["paper_equal"]["within_2_combined_sem"] == near


def test_they_stand_there_once_where_they_are_the_optima(tmp_path: Path) -> None:
    folder = study_of_nci1(tmp_path, grid=(0.0, 0.003162))
    results = read_results(folder)
    tested = {t.weight_decay: t for t in (*results.test.values(), *results.further)}
    zero, papers = tested[0.0], tested[0.003162]
    same = replace(results, test={"ind": papers, "ens": zero}, further=())
    assert len(paper_cells(same)) == 18 and equal_cells(same) == []
    other = replace(results, test={"ind": zero, "ens": papers}, further=())
    assert {cell.names[2:4] for cell in equal_cells(other)} == {
        ("average member (h*_ind)", "0.003162"),
        ("no weight decay", "0"),
    }


@pytest.mark.parametrize("flags", [{"train_fraction": 0.5}, {"epochs": 20}, {"val_fraction": 0.2}, {"members": 3}])
def test_another_experiment_does_not(tmp_path: Path, flags: dict[str, object]) -> None:
    write_report(study_of_nci1(tmp_path, **flags))
    assert not (tmp_path / "tables" / "paper.csv").exists()
    assert "paper" not in json.loads((tmp_path / "summary.json").read_text())

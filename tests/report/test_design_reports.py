"""Reports of the studies of a design, from made predictions: what stands in which cell, and what is marked how."""

import csv
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ensgap import calibrate, metrics
from ensgap.folder import StudyFolder, TrialRecord
from ensgap.holdout import Holdout
from ensgap.plans.design import DesignPlan
from ensgap.plans.design_config import BatchEnsembleConfig, EarlyStoppingConfig, TemperatureConfig
from ensgap.predictions import Predictions
from ensgap.report import write_report
from ensgap.results.batch_ensemble import read_batch_ensemble
from ensgap.results.early_stopping import read_stopping
from ensgap.results.temperature import Variant, read_temperature
from ensgap.spec import TrialSpec
from ensgap.tasks import get_task

STEPS, POOL_STEPS = 6, 8
Made = dict[str, Predictions]


def made(
    spec: TrialSpec, seed: int, points: int = 48, order: int = 0, sharpness: float = 2.0, trained: int = 0
) -> Predictions:
    """Members that see the labels through noise of their own; all of them trained on the last so many points."""
    generator = torch.Generator().manual_seed(seed)
    members, ensembles, classes = spec.members, len(spec.replicates), get_task(spec.task).classes
    labels = torch.randint(classes, (ensembles, points), generator=generator)
    noise = torch.randn(ensembles, members, points, classes, generator=generator)
    chunk = torch.arange(points) * members // (points - trained)
    held = ((chunk - torch.arange(members).unsqueeze(1)) % members) < (order or members)
    held &= torch.arange(points) < points - trained
    return Predictions(
        logits=noise + sharpness * torch.nn.functional.one_hot(labels, classes).unsqueeze(1),
        labels=labels,
        held=held.repeat(ensembles, 1, 1),
        index=torch.arange(points).repeat(ensembles, 1),
        identity=spec.identity(),
    )


def write_study(
    path: Path,
    plan: DesignPlan,
    predict: Callable[[TrialSpec, int], Made],
    details: Callable[[TrialSpec], dict[str, Any]] = lambda _: {},
) -> StudyFolder:
    """A finished study whose trials predicted that."""
    folder = StudyFolder(path)
    holdouts = [Holdout(order, fraction) for order in plan.holdouts for fraction in plan.val_fractions]
    specs = list(plan.trials(holdouts))
    for seed, spec in enumerate(specs):
        record = TrialRecord(spec.identity(), "finished", 9, 1.0, {}, details=details(spec))
        folder.finish(spec, record, predict(spec, seed))
    folder.write_study(
        {
            "config": plan.to_json(),
            "data": {"pool": 900, "test": 100, "notes": []},
            "command": "python studies/x.py",
            "versions": {},
            "seconds": 1.0,
            "trials": [spec.key for spec in specs],
            "notes": [],
        }
    )
    return folder


def rows_of(folder: StudyFolder, table: str) -> list[dict[str, str]]:
    return list(csv.DictReader((folder.local / "tables" / f"{table}.csv").open()))


def section(folder: StudyFolder, caption: str) -> str:
    """The part of report.md that begins with this caption."""
    text = (folder.local / "report.md").read_text()
    return text[text.index(caption) :].split("\n\n")[1]


@pytest.fixture(scope="module")
def temperature(tmp_path_factory: pytest.TempPathFactory) -> StudyFolder:
    """NCI1 as in the paper, with two replicates; nothing is wrong on the holdouts of 1%, so that T has no optimum."""
    config = TemperatureConfig(val_fractions=(0.01, 0.1), holdouts=("shared", "overlapping", "disjoint"), replicates=2)

    def predict(spec: TrialSpec, seed: int) -> Made:
        assert spec.holdout is not None
        sharpness = 40.0 if spec.holdout.fraction == 0.01 else 0.7
        return {"holdout": made(spec, seed, 48, spec.holdout.order, sharpness), "test": made(spec, 100 + seed, 200)}

    folder = write_study(tmp_path_factory.mktemp("made") / "temperature", config.plan(get_task("nci1")), predict)
    write_report(folder)
    return folder


def test_the_papers_figures_stand_beside_those_of_the_same_cells(temperature: StudyFolder) -> None:
    lines = section(temperature, "Test data, ensemble: NLL").splitlines()
    titles, ten = ([text.strip() for text in lines[i].split("|")[1:-1]] for i in (0, 3))
    cells = dict(zip(titles, ten, strict=True))
    assert cells["Held out"] == "10%"
    assert cells["joint, shared"].replace("*", "").endswith("(paper 0.442 ± 0.003)")
    assert cells["individual, overlapping"].replace("*", "").endswith("(paper 0.449 ± 0.003)")
    assert "paper" not in cells["no scaling, disjoint"]
    assert not any(text.endswith(")**") for text in ten)  # bold is for ours
    assert "joint, disjoint" not in titles
    (row,) = [row for row in rows_of(temperature, "avg_member_error") if row["held_out"] == "10%"]
    assert float(row["joint/4_paper"]) == pytest.approx(0.1997)  # a share, as ours


def test_temperatures_on_their_bound_are_marked_and_the_prior_has_none(temperature: StudyFolder) -> None:
    tiny, larger = rows_of(temperature, "ensemble_nll")
    assert {tiny[f"{key}_mark"] for key in ("individual/4", "joint/4", "joint/2", "individual/1")} == {" † 100%"}
    assert "none/4_mark" not in tiny
    assert larger["individual/4_mark"] == ""
    assert "sat on its bound (1/4 or 4)" in (temperature.local / "report.md").read_text()
    found = read_temperature(temperature).cell(4, 0.01)
    assert found is not None
    assert (found.by[Variant("joint")].temperatures == 1 / calibrate.BOUND).all()
    assert not found.by[Variant("joint", prior=True)].at_bound.any()


def test_a_joint_temperature_has_the_points_of_all_members(temperature: StudyFolder) -> None:
    cells = {cell.holdout.order: cell for cell in read_temperature(temperature).cells if cell.holdout.fraction == 0.1}
    assert {order: (c.points, c.distinct_points) for order, c in cells.items()} == {
        4: (48, 48),
        2: (24, 48),
        1: (12, 48),
    }
    assert "With the fewest points to fit it on (48, a shared holdout of 1%)" in write_report(temperature).headline


def test_every_scaling_has_every_figure_of_its_own_fit(temperature: StudyFolder) -> None:
    rows = rows_of(temperature, "all_scalings_overlapping")
    assert [row["figure"] for row in rows[:6]] == [
        f"{level}, {metric}" for level in ("ensemble", "average member") for metric in ("Error (%)", "NLL", "ECE")
    ]
    folders = [
        p for p in (temperature.local / "trials").iterdir() if p.name.startswith("holdout-holdout=2,val_fraction=0.1,")
    ]
    found = []
    for path in sorted(folders):
        holdout, test = (Predictions.load(path / f"{name}.npz") for name in ("holdout", "test"))
        fitted = calibrate.fit(holdout, "joint_per_member", prior=1.0)
        found.append(calibrate.figures(test, fitted)["avg_member_nll"].item())
    (row,) = [row for row in rows if (row["held_out"], row["figure"]) == ("10%", "average member, NLL")]
    assert float(row["joint_per_member_prior"]) == pytest.approx(np.mean(found))
    assert float(row["joint_per_member_prior_sem"]) == pytest.approx(np.std(found, ddof=1) / np.sqrt(2))
    assert row["points"] == "24"
    header = (temperature.local / "tables" / "all_scalings_disjoint.csv").read_text().splitlines()[0]
    assert "individual_prior" in header and "joint" not in header and "pooled" not in header


def test_disjoint_holdouts_alone_have_no_joint_columns(tmp_path: Path) -> None:
    config = TemperatureConfig(val_fractions=(0.1,), holdouts=("disjoint",), replicates=1)
    folder = write_study(
        tmp_path, config.plan(get_task("nci1")), lambda s, i: {"holdout": made(s, i, order=1), "test": made(s, 9)}
    )
    assert "there is no joint temperature" in write_report(folder).headline
    for table in folder.local.glob("tables/*.csv"):
        assert "joint" not in table.read_text().replace("disjoint", ""), table.name


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> StudyFolder:
    config = EarlyStoppingConfig(val_fractions=(0.05,), replicates=3)

    def predict(spec: TrialSpec, seed: int) -> Made:
        assert spec.holdout is not None
        rules = ("individual", "shared_epoch", "joint")[: 3 if spec.holdout.order > 1 else 2]
        found = {}
        for i, rule in enumerate(rules):
            found[f"{rule}-holdout"] = made(spec, 10 * seed + i, 48, spec.holdout.order)
            found[f"{rule}-test"] = made(spec, 1000 + 10 * seed + i, 100, sharpness=2 + i)
        return found

    def details(spec: TrialSpec) -> dict[str, Any]:
        kept = {"individual": [[4, 6, 5, 9]], "shared_epoch": [[7] * 4], "joint": [[8] * 4]}
        stopped = spec.replicates != (2,)
        return {"kept": kept, "steps": STEPS, "pool_steps": POOL_STEPS, "stopped": stopped, "parameters": 1}

    path = tmp_path_factory.mktemp("made") / "stopping"
    folder = write_study(path, config.plan(get_task("nci1")), predict, details)
    write_report(folder)
    return folder


def test_epochs_are_counted_in_steps_of_the_whole_pool(stopped: StudyFolder) -> None:
    (row,) = rows_of(stopped, "epochs")
    assert float(row["individual/4"]) == pytest.approx(6 * STEPS / POOL_STEPS)  # 6: the members' mean
    assert float(row["joint/2"]) == pytest.approx(8 * STEPS / POOL_STEPS)
    assert "joint/1" not in row
    assert "Some trials reached 1000 epochs before every rule had stopped." in (stopped.local / "report.md").read_text()


def test_stopping_then_temperature_compares_each_rule_with_and_without(stopped: StudyFolder) -> None:
    rows = {(row["holdout"], row["metric"]): row for row in rows_of(stopped, "then_temperature")}
    assert set(rows) == {(h, m) for h in ("shared", "overlapping") for m in ("Error (%)", "NLL", "ECE")}
    shared = rows["shared", "NLL"]
    assert (float(shared["joint/none_paper"]), float(shared["joint/joint_paper"])) == (0.4729, 0.4755)
    assert rows["overlapping", "NLL"]["joint/none_paper"] == ""
    for rule, prior in (("individual", None), ("joint", None), ("joint", 1.0)):
        found = []
        for path in sorted(p for p in (stopped.local / "trials").iterdir() if p.name.startswith("holdout-holdout=4,")):
            holdout, test = (Predictions.load(path / f"{rule}-{name}.npz") for name in ("holdout", "test"))
            found.append(calibrate.figures(test, calibrate.fit(holdout, "joint", prior))["ensemble_nll"].item())
        assert float(shared[f"{rule}/joint{'_prior' if prior else ''}"]) == pytest.approx(np.mean(found))
    gap = next(c for c in read_stopping(stopped).cells if c.holdout.order == 4).gap()
    assert gap is not None and gap["nll"].verdict == "positive"  # each rule was made sharper than the one before


@pytest.fixture(scope="module")
def shared_weights(tmp_path_factory: pytest.TempPathFactory) -> StudyFolder:
    """A holdout that looks like training with Gaussian fast weights, and like test data with signs; the deep ensemble
    is best of all.
    """
    config = BatchEnsembleConfig(replicates=4, inits=("gaussian_0.1", "sign"))

    def predict(spec: TrialSpec, seed: int) -> Made:
        assert spec.holdout is not None
        rule = "joint" if spec.holdout.order > 1 else "shared_epoch"
        found = {f"{rule}-test": made(spec, seed, 200, sharpness=2.0 if spec.fast_weights else 5.0)}
        if spec.fast_weights:
            pool = made(spec, 50 + seed, 800, spec.holdout.order, sharpness=8.0, trained=400)
            if spec.fast_weights == "sign":
                fresh = made(spec, 50 + seed, 800, spec.holdout.order, sharpness=2.0, trained=400)
                pool = replace(pool, logits=torch.where(pool.held.unsqueeze(-1), fresh.logits, pool.logits))
            found[f"{rule}-pool"] = pool
        return found

    def details(spec: TrialSpec) -> dict[str, Any]:
        kept = {"shared_epoch": [[7] * 4], "joint": [[8] * 4]}
        parameters = 100 if spec.fast_weights else 400
        return {"kept": kept, "steps": 1, "pool_steps": 1, "stopped": True, "parameters": parameters}

    path = tmp_path_factory.mktemp("made") / "batch"
    folder = write_study(path, config.plan(get_task("cifar10")), predict, details)
    write_report(folder)
    return folder


def test_a_leak_is_measured_and_told_from_none(shared_weights: StudyFolder) -> None:
    results = read_batch_ensemble(shared_weights)
    verdicts = {(c.init, c.holdout.order): c.verdict() for c in results.cells if c.init != "none"}
    words = {"gaussian_0.1": "leaks", "sign": "trust it"}
    assert verdicts == {(init, k): word if k < 4 else "–" for init, word in words.items() for k in (4, 2, 1)}
    for cell in results.cells:
        if cell.init == "none":
            assert cell.leak() is None
            continue
        nll: Mapping[str, Any] = {where: figures["nll"].mean() for where, figures in cell.members.items()}
        leak = cell.leak()
        assert leak is not None
        assert leak.mean == pytest.approx((nll["test"] - nll["holdout"]) / (nll["test"] - nll["train"]))
        assert nll["train"] < nll["test"]
    some = next(p for p in (shared_weights.local / "trials").iterdir() if "holdout=2" in p.name and "sign" in p.name)
    pool = Predictions.load(some / "joint-pool.npz")
    own = [
        metrics.nll(pool.logits[0, m, held].double().log_softmax(-1), pool.labels[0, held])
        for m, held in enumerate(pool.held[0])
    ]
    cell = next(c for c in results.cells if (c.init, c.holdout.order) == ("sign", 2))
    replicate = json.loads((some / "trial.json").read_text())["identity"]["replicates"][0]
    assert cell.members["holdout"]["nll"][cell.replicates.index(replicate)] == pytest.approx(torch.stack(own).mean())


def test_the_deep_ensemble_stands_beside_and_out_of_the_comparison(shared_weights: StudyFolder) -> None:
    lines = section(shared_weights, "Test data, 2% held out").splitlines()
    titles = [text.strip() for text in lines[0].split("|")[1:-1]]
    assert titles[:3] == ["Metric", "deep ensemble, shared", "N(1, 0.1²), shared"]
    error, nll, _, diversity, entropy, _ = ([text.strip() for text in line.split("|")[1:-1]] for line in lines[2:])
    means = [float(re.search(r"[\d.]+", text)[0]) for text in diversity[2:]]  # type: ignore[index]
    assert "**" not in nll[1] and any("**" in text for text in nll[2:])  # although it is by far the best
    assert nll[1].endswith("(paper 0.221 ± 0.003)") and error[1].endswith("(paper 6.7 ± 0.1)")
    assert "**" in diversity[2 + int(np.argmax(means))]
    assert not any("**" in text for text in entropy)
    assert {row["init"]: row["parameters"] for row in rows_of(shared_weights, "parameters")} != {}
    tex = (shared_weights.local / "tables" / "test.tex").read_text()
    assert r" & \multicolumn{1}{c}{deep ensemble} & \multicolumn{3}{c}{N(1, 0.1$^2$)}" in tex
    assert r"\cmidrule(lr){3-5}" in tex

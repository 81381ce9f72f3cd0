"""Reports: rebuilt without training, byte for byte; tables in all their forms; the page in a real browser."""

import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ensgap.folder import StudyFolder
from ensgap.gap import Estimate
from ensgap.report.tables import Column, Table
from ensgap.results.optima import read_results

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def rebuild(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ensgap.report", str(folder)], capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_a_rebuilt_report_is_byte_identical(finished_study: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(
        finished_study, copy, ignore=shutil.ignore_patterns("ray", "tables", "figures", "*.csv", "report.*")
    )
    done = rebuild(copy)
    assert done.returncode == 0, done.stderr
    for path in [*finished_study.glob("tables/*"), finished_study / "trials.csv", finished_study / "summary.json"]:
        assert (copy / path.relative_to(finished_study)).read_bytes() == path.read_bytes(), path.name
    for path in [*finished_study.glob("figures/*"), finished_study / "report.md", finished_study / "report.html"]:
        assert (copy / path.relative_to(finished_study)).read_bytes() == path.read_bytes(), path.name


@pytest.mark.slow
def test_damaged_predictions_are_named(finished_study: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(finished_study, copy, ignore=shutil.ignore_patterns("ray"))
    victim = next(copy.glob("trials/search-weight_decay=0.001-*/predictions.npz"))
    victim.write_bytes(victim.read_bytes()[:500])
    done = rebuild(copy)
    assert done.returncode == 2
    assert "weight_decay=0.001" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_diverged_settings_are_shown(finished_study: Path) -> None:
    assert "Diverged, and so never selected: weight decay 1e+09" in (finished_study / "report.md").read_text()
    assert "diverged" in (finished_study / "trials.csv").read_text()


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_the_page_opens_offline_in_a_browser(finished_study: Path, tmp_path: Path) -> None:
    assert CHROMIUM is not None
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    flags += [
        f"--user-data-dir={tmp_path}",
        "--disable-component-update",
        "--disable-sync",
        "--virtual-time-budget=3000",
    ]
    page = (finished_study / "report.html").absolute().as_uri()
    done = subprocess.run(
        [CHROMIUM, *flags, "--dump-dom", page], capture_output=True, text=True, check=True, timeout=120
    )
    results = read_results(StudyFolder(finished_study))
    assert f"<b>{results.h_ens.weight_decay:.4g}</b>" in done.stdout
    figures = {path.stem for path in finished_study.glob("figures/*.png")}
    assert {"nll", "error", "size"} < figures and done.stdout.count("<img") == len(figures)
    assert 'src="http' not in done.stdout
    assert 'href="http' not in done.stdout


@pytest.mark.slow
def test_results_recompute_the_figures_the_trials_recorded(finished_study: Path) -> None:
    folder = StudyFolder(finished_study)
    results = read_results(folder)
    recorded = {r.setting["weight_decay"]: r.validation for r, _ in folder.ended_trials("search")}
    for trial in results.trials:
        for name, value in recorded[trial.weight_decay].items():
            assert trial.figures[name].mean() == pytest.approx(value, rel=1e-12)
    assert results.test["ind"].replicates == results.test["ens"].replicates == (1000, 1001, 1002, 1003)


def test_a_folder_without_a_study() -> None:
    done = rebuild(Path("nowhere"))
    assert done.returncode == 2
    assert "holds no study" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_table_in_its_four_forms() -> None:
    table = Table(
        "t",
        "A 50% caption",
        (Column("name", "Name"), Column("error", "Error (%)", 1, 100.0)),
        (("a_b", Estimate(0.125, 0.01, 0, 0)), ("c", Estimate(0.5, math.nan, 0, 0)), ("d", "diverged")),
        frozenset({(0, "error")}),
    )
    assert table.csv().splitlines() == ["name,error,error_sem", "a_b,0.125,0.01", "c,0.5,", "d,diverged,"]
    assert r"| a\_b | **12.5 ± 1.0** |" in table.markdown()
    assert "| c | 50.0 |" in table.markdown()
    assert r"a\_b & \textbf{12.5 $\pm$ 1.0} \\" in table.latex()
    assert r"\caption{A 50\% caption}" in table.latex()
    assert "<td><b>12.5 ± 1.0</b></td>" in table.html()

"""The package as a whole: its version, and the wall between training and analysis."""

import subprocess
import sys

import ensgap


def test_version() -> None:
    assert ensgap.__version__.count(".") == 2


def test_nothing_right_of_predictions_imports_ray() -> None:
    modules = "ensgap.metrics, ensgap.calibrate, ensgap.gap, ensgap.results, ensgap.report, ensgap.predictions"
    check = f"import sys, {modules}; assert not {{'ray', 'optuna'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)


def test_nothing_left_of_predictions_draws() -> None:
    check = "import sys, ensgap.train, ensgap.tasks, ensgap.search.run; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True)

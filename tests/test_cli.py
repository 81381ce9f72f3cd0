"""The command line: flags from the dataclass, and an end with one sentence and the right status."""

import sys
from pathlib import Path

import pytest

from ensgap.cli import command_line, main, parse
from ensgap.errors import UserError
from ensgap.plans.weight_decay import WeightDecayConfig
from tests.conftest import run_study


def test_flags_become_a_configuration() -> None:
    line = (
        "--task digits --grid 0 1e-3 --holdout overlapping --search optuna --num-samples 20 --out x --resume --lr 0.2"
    )
    config = parse(WeightDecayConfig, line.split())
    expected = WeightDecayConfig(
        grid=(0.0, 1e-3), holdout="overlapping", search="optuna", num_samples=20, out=Path("x"), resume=True, lr=0.2
    )
    assert config == expected
    assert parse(WeightDecayConfig, []) == WeightDecayConfig()


@pytest.mark.parametrize(
    ("line", "address"), [("", None), ("--cluster", "auto"), ("--cluster --smoke", "auto"), ("--cluster h:1", "h:1")]
)
def test_a_flag_whose_value_may_be_left_out(line: str, address: str | None) -> None:
    assert parse(WeightDecayConfig, line.split()).cluster == address


@pytest.mark.parametrize("line", ["--epochs x", "--epoch 3", "--search bayes", "--grid", "--members 1.5", "stray"])
def test_a_bad_flag_is_one_line_and_status_2(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse(WeightDecayConfig, line.split())
    assert stopped.value.code == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_a_user_error_is_one_line_and_status_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(config: WeightDecayConfig) -> None:
        raise UserError("Do this instead.")

    monkeypatch.setattr(sys, "argv", ["studies/weight_decay.py", "--smoke"])
    with pytest.raises(SystemExit) as stopped:
        main(WeightDecayConfig, refuse)
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "weight_decay.py: Do this instead.\n"


def test_the_command_has_no_path_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(Path.cwd() / "studies/weight_decay.py"), "--grid", "0"])
    assert command_line() == "python studies/weight_decay.py --grid 0"
    monkeypatch.setattr(sys, "argv", ["/somewhere/else/weight_decay.py"])
    assert command_line() == "python weight_decay.py"


def test_the_command_and_errors_show_no_password(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(config: WeightDecayConfig) -> None:
        raise UserError("There is nothing at s3://key:hush@bucket/x.")

    monkeypatch.setattr(sys, "argv", ["weight_decay.py", "s3://key:hush@bucket/x"])
    assert command_line() == "python weight_decay.py 's3://key:***@bucket/x'"
    monkeypatch.setattr(sys, "argv", ["weight_decay.py"])
    with pytest.raises(SystemExit):
        main(WeightDecayConfig, refuse)
    assert "hush" not in capsys.readouterr().err


def test_the_script_refuses_without_a_traceback_or_a_folder(tmp_path: Path) -> None:
    status, output = run_study(tmp_path / "out", "--val-fraction", "0.001")
    assert status == 2
    assert "choose a larger --val-fraction" in output
    assert len(output.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("in the way")
    status, output = run_study(tmp_path / "out", "--smoke")
    assert status == 2
    assert "cannot be written" in output
    assert "Traceback" not in output


def test_list_tasks(tmp_path: Path) -> None:
    status, output = run_study(tmp_path / "out", "--list-tasks")
    assert status == 0
    assert output.startswith("digits")

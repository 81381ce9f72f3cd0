"""`--task path/to/my_task.py`: found, run and refused."""

from pathlib import Path

import pytest

from ensgap.errors import UserError
from ensgap.tasks.file import load_task_file

GOOD = """
import numpy as np
import ensgap
from torch import nn
import helper

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, helper.CLASSES)

    def forward(self, x):
        return self.layer(x)

def task():
    x = np.random.default_rng(0).normal(size=(40, 4))
    return ensgap.Task.from_arrays("mine", x, np.arange(40) % 2, network=Net)
"""


def test_a_file_with_a_task_and_a_neighbour_to_import(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("CLASSES = 2")
    (tmp_path / "mine.py").write_text(GOOD)
    assert load_task_file(tmp_path / "mine.py").name == "mine"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "There is no file"),
        ("x = 1", "has no function task()"),
        ("def task():\n    return 3", "must return a Task, .* however it returned a int"),
        ("import nothing_of_this_name", "line 1 does not run: ModuleNotFoundError"),
        ("def task(:", "does not run: SyntaxError"),
        ("def task():\n\n    return 1 / 0", "line 3 does not run: ZeroDivisionError"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_sentence(text: str | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match=words.replace("(", r"\(").replace(")", r"\)")) as error:
        load_task_file(path)
    assert "\n" not in str(error.value)

"""A task from somebody's Python file: `--task path/to/my_task.py`, which has a function `task()`."""

import importlib.util
import sys
import traceback
from pathlib import Path

from ensgap.errors import UserError
from ensgap.tasks.task import Task


def load_task_file(path: Path) -> Task:
    """What the file's function `task()` returns. The file's folder can be imported from, as in a script."""
    if not path.is_file():
        raise UserError(f"There is no file {path}; --task takes a task's name or a Python file with a function task().")
    name = module_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
        if not callable(getattr(module, "task", None)):
            raise UserError(f"{path} has no function task(); write one that returns ensgap.Task.from_arrays(…).")
        task = module.task()
    except UserError:
        raise
    except Exception as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path]
        where = f", line {frames[-1].lineno}" if frames else ""
        raise UserError(f"{path}{where} does not run: {type(error).__name__}: {error}.") from None
    finally:
        sys.path.remove(str(path.parent.resolve()))
    if not isinstance(task, Task):
        raise UserError(
            f"The function task() of {path} must return a Task, such as ensgap.Task.from_arrays(…), however it "
            f"returned a {type(task).__name__}."
        )
    return task


def module_name(path: Path) -> str:
    """Under which the file is imported; it must not hide a module of the same name."""
    return f"ensgap_task_{path.stem}"

"""The tasks by name."""

from ensgap.errors import UserError
from ensgap.tasks.ag_news import AG_NEWS
from ensgap.tasks.cifar10 import CIFAR10
from ensgap.tasks.covertype import COVERTYPE
from ensgap.tasks.diabetes import DIABETES
from ensgap.tasks.digits import DIGITS
from ensgap.tasks.nci1 import NCI1
from ensgap.tasks.task import Defaults, Task, TaskData

TASKS: dict[str, Task] = {task.name: task for task in (DIGITS, DIABETES, CIFAR10, NCI1, COVERTYPE, AG_NEWS)}


def get_task(name: str) -> Task:
    """The task of that name."""
    if name not in TASKS:
        raise UserError(f"There is no task '{name}'; --list-tasks shows them: {', '.join(TASKS)}; a file ends in .py.")
    return TASKS[name]


__all__ = ["TASKS", "Defaults", "Task", "TaskData", "get_task"]

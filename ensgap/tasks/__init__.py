"""The tasks by name."""

from ensgap.errors import UserError
from ensgap.tasks.digits import DIGITS
from ensgap.tasks.task import Points, Task, TaskData

TASKS: dict[str, Task] = {task.name: task for task in (DIGITS,)}


def get_task(name: str) -> Task:
    """The task of that name."""
    if name not in TASKS:
        raise UserError(f"There is no task '{name}'; --list-tasks shows them: {', '.join(TASKS)}.")
    return TASKS[name]


__all__ = ["TASKS", "Points", "Task", "TaskData", "get_task"]

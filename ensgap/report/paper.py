"""The paper's own figures, to stand beside ours where a study repeats one of its cells."""

import csv
from functools import cache
from importlib.resources import files

Figure = tuple[str, str]
"""Mean and SEM, as printed."""


@cache
def _rows() -> list[dict[str, str]]:
    text = files("ensgap.report").joinpath("paper_tables.csv").read_text()
    return list(csv.DictReader(text.splitlines()))


@cache
def _figures() -> dict[tuple[str, ...], Figure]:
    names = ("study", "task", "level", "setting", "holdout", "val_pct", "metric")
    return {tuple(row[name] for name in names): (row["mean"], row["sem"]) for row in _rows()}


def paper_figure(
    study: str, task: str, level: str, setting: str, holdout: str, fraction: float | None, metric: str
) -> Figure | None:
    """What the paper prints for that cell, if it has it; of a network of another size (`nci1-128`) too."""
    percent = "" if fraction is None else f"{100 * fraction:g}"
    levels = {"avg_member": "average_member"}
    metrics = {"error": "error_pct", "epochs": "norm_epochs"}
    key = (study, _data_of(task), levels.get(level, level), setting, holdout, percent, metrics.get(metric, metric))
    return _figures().get(key)


def paper_weight_decay(task: str, setting: str) -> float | None:
    """The weight decay that the paper selected (`selected_by=individual`, `selected_by=joint`) on that task."""
    wanted = ("weight_decay", _data_of(task), setting)
    found = (row for row in _rows() if (row["study"], row["task"], row["setting"]) == wanted)
    return next((float(row["weight_decay"]) for row in found), None)


def _data_of(task: str) -> str:
    return task.partition("-")[0]

"""A weight-decay study that repeats the paper's, beside it: at both optima, and without weight decay; and, where the
optima are others than the paper's, at the paper's own.
"""

from collections.abc import Mapping

from ensgap.report.paper import paper_figure, paper_weight_decay
from ensgap.report.paper_cells import PaperCell
from ensgap.report.style import number
from ensgap.report.weight_decay_tables import LEVELS
from ensgap.report.words import METRIC_WORDS
from ensgap.results.optima import SettingFigures, StudyResults

HEADS = {
    "level": "Figures of",
    "metric": "Metric",
    "selected_by": "Setting best for",
    "weight_decay": "Weight decay",
    "paper_weight_decay": "The paper's",
}
METRICS = ("error", "nll", "ece")


EQUAL = "paper_equal"
"""The name of the table at equal weight decays."""
Settings = Mapping[str, tuple[str, str, SettingFigures]]
"""How a setting was chosen -> what the paper calls it and its holdout, and our figures of it."""


def paper_cells(results: StudyResults) -> list[PaperCell]:
    """Every figure that both have; none unless the study repeats the paper's."""
    return _cells(results, _settings(results)) if results.config.get("as_paper") else []


def equal_cells(results: StudyResults) -> list[PaperCell]:
    """The same at the paper's own weight decays, as far as they were tested; none where those are the optima."""
    if not results.config.get("as_paper"):
        return []
    optima, equal = _settings(results), _equal_settings(results)
    return [] if all(optima.get(by) == own for by, own in equal.items()) else _cells(results, equal)


def _cells(results: StudyResults, settings: Settings) -> list[PaperCell]:
    task, found = str(results.config["task"]), []
    for level, title in LEVELS.items():
        for metric in METRICS:
            words = METRIC_WORDS[metric]
            for by, (setting, holdout, tested) in settings.items():
                paper = paper_figure("weight_decay", task, level, setting, holdout, None, metric)
                theirs = paper_weight_decay(task, setting)
                if paper is None or theirs is None:
                    continue
                names = (title, words.title, by, number(tested.weight_decay), number(theirs))
                ours = tested.estimate(f"{level}_{metric}")
                found.append(PaperCell(names, ours, paper, words.digits, words.scale))
    return found


IND, ENS, NONE = "average member (h*_ind)", "ensemble (h*_ens)", "no weight decay"


def _settings(results: StudyResults) -> Settings:
    """Ours at our optima, beside the paper's at its own."""
    none = [t for t in (*results.test.values(), *results.further) if t.weight_decay == 0]
    return {
        IND: ("selected_by=individual", "shared", results.test["ind"]),
        ENS: ("selected_by=joint", "shared", results.test["ens"]),
    } | ({NONE: ("no_weight_decay", "none", none[0])} if none else {})


def _equal_settings(results: StudyResults) -> Settings:
    """Ours at the paper's optima, which it prints to three digits."""
    found, task = {}, str(results.config["task"])
    for by, setting, holdout in (
        (IND, "selected_by=individual", "shared"),
        (ENS, "selected_by=joint", "shared"),
        (NONE, "no_weight_decay", "none"),
    ):
        theirs = paper_weight_decay(task, setting)
        for tested in (*results.test.values(), *results.further):
            if theirs is not None and float(f"{tested.weight_decay:.3g}") == theirs:
                found[by] = (setting, holdout, tested)
    return found

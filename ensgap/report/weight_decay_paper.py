"""A weight-decay study that repeats the paper's, beside it: at both optima, and without weight decay."""

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


def paper_cells(results: StudyResults) -> list[PaperCell]:
    """Every figure that both have; none unless the study repeats the paper's."""
    task, found = str(results.config["task"]), []
    if not results.config.get("as_paper"):
        return []
    for level, title in LEVELS.items():
        for metric in METRICS:
            words = METRIC_WORDS[metric]
            for by, (setting, holdout, tested) in _settings(results).items():
                paper = paper_figure("weight_decay", task, level, setting, holdout, None, metric)
                theirs = paper_weight_decay(task, setting)
                if paper is None or theirs is None:
                    continue
                names = (title, words.title, by, number(tested.weight_decay), number(theirs))
                ours = tested.estimate(f"{level}_{metric}")
                found.append(PaperCell(names, ours, paper, words.digits, words.scale))
    return found


def _settings(results: StudyResults) -> dict[str, tuple[str, str, SettingFigures]]:
    """What the paper calls a setting and its holdout, and our figures of it."""
    none = [t for t in (*results.test.values(), *results.further) if t.weight_decay == 0]
    return {
        "average member (h*_ind)": ("selected_by=individual", "shared", results.test["ind"]),
        "ensemble (h*_ens)": ("selected_by=joint", "shared", results.test["ens"]),
    } | ({"no weight decay": ("no_weight_decay", "none", none[0])} if none else {})

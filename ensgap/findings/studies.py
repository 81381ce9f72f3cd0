"""The published studies: which there are, what each is worth as evidence, and what it cost."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ensgap.folder import StudyFolder

Worth = Literal["as in the paper", "scaled down", "not in the paper"]
WORTHS: tuple[Worth, ...] = ("as in the paper", "scaled down", "not in the paper")
PAPER_TASKS = ("nci1", "cifar10", "covertype", "ag_news")
TITLES = {
    "nci1": "NCI1",
    "nci1-128": "NCI1 (128 features)",
    "cifar10": "CIFAR-10",
    "covertype": "Covertype",
    "ag_news": "AG News",
    "digits": "digits",
}
"""What the tasks' data are called; a task with another network of the paper's size has a name of its own."""
STUDIES = ("weight_decay", "early_stopping", "temperature", "batch_ensemble", "tune")
MAIN_TABLES = {
    "weight_decay": ("Beside the paper", "Test data"),
    "early_stopping": ("Test data, ensemble: NLL",),
    "temperature": ("Test data, ensemble: NLL",),
}
"""How the captions of the tables begin that a page shows first; the first table elsewhere."""


@dataclass(frozen=True, eq=False)
class PublishedStudy:
    """A folder that `ensgap.publish` wrote."""

    path: Path
    record: Mapping[str, Any]  # study.json

    @property
    def folder(self) -> StudyFolder:
        """To read its results from."""
        return StudyFolder(self.path)

    @property
    def config(self) -> Mapping[str, Any]:
        """The study's configuration."""
        config: Mapping[str, Any] = self.record["config"]
        return config

    @property
    def name(self) -> str:
        """Which study."""
        return str(self.config["study"])

    @property
    def task(self) -> str:
        """On which task."""
        return str(self.config["task"])

    @property
    def family(self) -> str:
        """The task whose data it has: `ag_news` for `ag_news-32`, which has a smaller network."""
        return self.task.partition("-")[0]

    @property
    def on(self) -> str:
        """Its task, and whatever else its folder's name says: `digits`, `digits-m16`."""
        return self.path.name.removeprefix(f"{self.name}-")

    @property
    def order_search(self) -> bool:
        """Whether it is a search of a weight decay with holdouts of another order than the paper's shared one."""
        return self.name == "weight_decay" and self.config["holdout"] != self.config["members"]

    @property
    def control(self) -> bool:
        """Whether its search is a formality, because nobody can say how firm the optima of one replicate are."""
        return self.name == "weight_decay" and self.config["replicates"] == 1

    @property
    def further_orders(self) -> list[int]:
        """Orders of its holdouts that the paper does not have, where it is a study of several."""
        members = self.config["members"]
        return [int(order) for order in self.config.get("holdouts", ()) if order not in (1, 2, members)]

    @property
    def worth(self) -> Worth:
        """Whether its figures may be compared with the paper's in value, in direction only, or not at all."""
        if self.config.get("as_paper"):
            return "as in the paper"
        return "scaled down" if self.family in PAPER_TASKS else "not in the paper"

    @property
    def core_hours(self) -> float:
        """Of training, summed over trials; each had a core."""
        records = self.path.glob("trials/*/trial.json")
        return sum(float(json.loads(path.read_bytes())["seconds"]) for path in sorted(records)) / 3600

    @property
    def markdown(self) -> str:
        """Its report."""
        return (self.path / "report.md").read_text()

    @property
    def data(self) -> str:
        """What its task's data are called."""
        return TITLES.get(self.task, TITLES.get(self.family, self.family))

    @property
    def title(self) -> str:
        """Of its report, without what `worth` says too."""
        return self.markdown.partition("\n")[0].removeprefix("# ").removesuffix(", scaled down")

    @property
    def thinned(self) -> str:
        """How much of its test data it was published with, where that is not all."""
        points = self.record.get("test_points")
        return f", with {points:,} of its {self.record['data']['test']:,} test points" if points else ""

    def without_scale(self, text: str) -> str:
        """A text of its report without how it was scaled down, which a note says once."""
        scaled = self.config.get("scaled_down")
        return text.replace(f" Scaled down: {scaled}.", "").replace(f"Scaled down ({scaled}). ", "")

    @property
    def headline(self) -> str:
        """Its answer in words."""
        return self.without_scale(str(json.loads((self.path / "summary.json").read_bytes())["headline"]))

    @property
    def notes(self) -> list[str]:
        """What a reader must know of it."""
        return [line.removeprefix("> ") for line in self.markdown.splitlines() if line.startswith("> ")]

    @property
    def figure(self) -> tuple[str, str]:
        """The caption and the file of the first figure of its report."""
        found = re.search(r"^!\[(.*)\]\((.*)\)$", self.markdown, flags=re.MULTILINE)
        assert found is not None
        return self.without_scale(found[1]), found[2]

    @property
    def table(self) -> tuple[str, str]:
        """The caption and the rows of the table to show first."""
        tables = re.findall(r"^([^|\n].*)\n\n((?:\|.*\n)+)", self.markdown, flags=re.MULTILINE)
        starts = (("At the paper's own",) if self.control else ()) + MAIN_TABLES.get(self.name, ())
        chosen = [table for start in starts for table in tables if table[0].startswith(start)]
        caption, rows = (chosen or tables)[0]
        return self.without_scale(caption), rows.rstrip("\n")


def read_published(published: Path) -> list[PublishedStudy]:
    """All of them, in reading order: by study, the paper's tasks first."""

    def place(study: PublishedStudy) -> tuple[int, bool, str]:
        return STUDIES.index(study.name), study.family not in PAPER_TASKS, study.path.name

    files = sorted(published.glob("*/study.json"))
    return sorted((PublishedStudy(file.parent, json.loads(file.read_bytes())) for file in files), key=place)

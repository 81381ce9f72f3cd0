"""One question of the page of findings: what a module of `ensgap.findings` hands to the page."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Section:
    """`text` is markdown, tables included; `figure` is a PNG file that was written below the page's folder."""

    title: str
    conclusion: str  # one sentence
    brief: str  # the same in a few words, for the top of the page
    text: str
    figure: Path
    caption: str  # of the figure: what is shown, and what bars are

"""One part of the page of findings: what a module of `ensgap.findings` hands to the page."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Section:
    """`text` is markdown, tables included; `figures` are PNG files that were written below the page's folder."""

    title: str
    text: str
    figures: tuple[Path, ...] = ()

"""Tables: one description, four forms (CSV with full precision; Markdown, LaTeX and HTML to read)."""

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from ensgap.gap import Estimate, not_worse_than_best


@dataclass(frozen=True)
class Marked:
    """An estimate with what stands beside it: the paper's mean and SEM (as printed there), and a mark."""

    estimate: Estimate
    paper: tuple[str, str] | None = None
    mark: str = ""
    digits: int | None = None  # instead of the column's
    scale: float | None = None


Cell = str | float | Estimate | Marked


@dataclass(frozen=True)
class Column:
    """How a column is named and its numbers are shown."""

    key: str
    title: str
    digits: int = 4
    scale: float = 1.0  # 100 shows a share as a percentage; the CSV keeps the share
    group: str = ""  # a heading over neighbouring columns

    @property
    def full_title(self) -> str:
        """For a table that has no headings over columns."""
        return f"{self.group}, {self.title}" if self.group else self.title


@dataclass(frozen=True)
class Table:
    """Rows of cells; `bold` holds (row, column key) pairs."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    bold: frozenset[tuple[int, str]] = frozenset()

    def csv(self) -> str:
        """Raw values; an estimate takes two columns, its mean and its SEM."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        parts = [self._csv_parts([row[i] for row in self.rows]) for i in range(len(self.columns))]
        writer.writerow([c.key + part for c, names in zip(self.columns, parts, strict=True) for part in names])
        for row in self.rows:
            cells = zip(self.columns, row, parts, strict=True)
            writer.writerow([field for c, cell, names in cells for field in _csv_fields(cell, c, names)])
        return out.getvalue()

    @staticmethod
    def _csv_parts(cells: Sequence[Cell]) -> list[str]:
        """The endings of the names of the columns that a column takes in a CSV file."""
        parts = [""]
        if any(isinstance(cell, Estimate | Marked) for cell in cells):
            parts.append("_sem")
        if any(isinstance(cell, Marked) and cell.paper for cell in cells):
            parts += ["_paper", "_paper_sem"]
        return parts + ["_mark"] * any(isinstance(cell, Marked) and cell.mark != "" for cell in cells)

    def markdown(self) -> str:
        """For report.md."""
        lines = [self._line([c.full_title for c in self.columns]), self._line(["---"] * len(self.columns))]
        for texts in self._texts("**{}**", escape_markdown):
            lines.append(self._line(texts))
        return "\n".join(lines)

    def latex(self) -> str:
        r"""For a paper; needs the package booktabs."""
        body = [*self._latex_groups(), " & ".join(_latex_escape(c.title) for c in self.columns) + r" \\", r"\midrule"]
        for texts in self._texts(r"\textbf{{{}}}", _latex_escape):
            body.append(" & ".join(texts) + r" \\")
        align = "l" + "r" * (len(self.columns) - 1)
        top = [r"\begin{table}", r"\centering", rf"\caption{{{_latex_escape(self.caption)}}}"]
        end = [r"\bottomrule", r"\end{tabular}", r"\end{table}", ""]
        return "\n".join([*top, rf"\begin{{tabular}}{{{align}}}", r"\toprule", *body, *end])

    def _latex_groups(self) -> list[str]:
        """The row of headings over columns and the rules below them, where there are any."""
        groups = self._groups()
        if not any(name for name, _ in groups):
            return []
        titles, rules, first = [], [], 1
        for name, count in groups:
            titles.append(
                rf"\multicolumn{{{count}}}{{c}}{{{_latex_escape(name)}}}" if name else " & ".join([""] * count)
            )
            rules += [rf"\cmidrule(lr){{{first}-{first + count - 1}}}"] if name else []
            first += count
        return [" & ".join(titles) + r" \\", " ".join(rules)]

    def html(self) -> str:
        """For the page, which shows the caption itself."""
        heads = ["".join(f"<th>{escape(c.title)}</th>" for c in self.columns)]
        if any(c.group for c in self.columns):
            groups = (f'<th class="group" colspan="{count}">{escape(name)}</th>' for name, count in self._groups())
            heads.insert(0, "".join(groups))
        lines = self._texts("<b>{}</b>", lambda text: escape(text).replace(" (paper ", "<br>(paper "))
        rows = ["".join(f"<td>{text}</td>" for text in texts) for texts in lines]
        body = "\n".join(f"<tr>{row}</tr>" for row in (*heads, *rows))
        return f"<table>\n{body}\n</table>"

    def _groups(self) -> list[tuple[str, int]]:
        """The headings over columns, each with the number of its columns."""
        return [(name, len(list(own))) for name, own in groupby(c.group for c in self.columns)]

    def _texts(self, bold: str, escaped: Callable[[str], str] = str) -> list[list[str]]:
        found = []
        for i, row in enumerate(self.rows):
            texts = []
            for column, cell in zip(self.columns, row, strict=True):
                own, beside, paper = format_cell(cell, column).partition(" (paper ")  # bold is ours only
                text = bold.format(escaped(own)) if (i, column.key) in self.bold else escaped(own)
                texts.append(text + escaped(beside + paper))
            found.append(texts)
        return found

    @staticmethod
    def _line(texts: Sequence[str]) -> str:
        return "| " + " | ".join(texts) + " |"


def _csv_fields(cell: Cell, column: Column, parts: Sequence[str]) -> list[str]:
    if isinstance(cell, str | float):
        return [cell if isinstance(cell, str) else _csv_number(cell)] + [""] * (len(parts) - 1)
    marked = cell if isinstance(cell, Marked) else Marked(cell)
    estimate, scale = marked.estimate, marked.scale or column.scale
    paper = [repr(float(value) / scale) for value in marked.paper] if marked.paper else ["", ""]
    known = {"": _csv_number(estimate.mean), "_sem": _csv_number(estimate.sem)}
    known |= {"_paper": paper[0], "_paper_sem": paper[1], "_mark": marked.mark}
    return [known[part] for part in parts]


def _csv_number(value: float) -> str:
    """In full; an unknown one is blank."""
    return "" if math.isnan(value) else repr(value)


def format_cell(cell: Cell, column: Column) -> str:
    """A cell as text: mean ± SEM with the column's digits."""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Marked):
        digits = column.digits if cell.digits is None else cell.digits
        text = format_cell(cell.estimate, Column("", "", digits, cell.scale or column.scale)) + cell.mark
        return text if cell.paper is None else f"{text} (paper {cell.paper[0]} ± {cell.paper[1]})"
    if isinstance(cell, Estimate):
        mean = f"{cell.mean * column.scale:.{column.digits}f}"
        return mean if math.isnan(cell.sem) else f"{mean} ± {cell.sem * column.scale:.{column.digits}f}"
    return "–" if math.isnan(cell) else f"{cell * column.scale:.{column.digits}f}"


def bold_of(estimates: Sequence[Estimate], highest: bool = False) -> list[bool]:
    """What is bold of them; nothing where one replicate gives no SEM to judge by."""
    known = not any(math.isnan(estimate.sem) for estimate in estimates)
    return [known and good for good in not_worse_than_best(estimates, highest)]


def escape_markdown(text: str) -> str:
    """Text whose stars and underscores are just that."""
    return text.replace("*", r"\*").replace("_", r"\_")


def _latex_escape(text: str) -> str:
    replacements = {
        "%": r"\%",
        "_": r"\_",
        "&": r"\&",
        "±": r"$\pm$",
        "–": "--",
        "*": r"$^*$",
        "−": "$-$",
        "×": r"$\times$",
        "†": r"\dag",
        "²": "$^2$",
        "σ": r"$\sigma$",
        "→": r"$\to$",
    }
    return "".join(replacements.get(letter, letter) for letter in text)

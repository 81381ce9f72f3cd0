"""Tables: one description, four forms (CSV with full precision; Markdown, LaTeX and HTML to read)."""

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from ensgap.gap import Estimate

Cell = str | float | Estimate


@dataclass(frozen=True)
class Column:
    """How a column is named and its numbers are shown."""

    key: str
    title: str
    digits: int = 4
    scale: float = 1.0  # 100 shows a share as a percentage; the CSV keeps the share


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
        estimates = {c.key for i, c in enumerate(self.columns) if any(isinstance(r[i], Estimate) for r in self.rows)}
        header = [[c.key, f"{c.key}_sem"] if c.key in estimates else [c.key] for c in self.columns]
        writer.writerow([name for names in header for name in names])
        for row in self.rows:
            fields: list[object] = []
            for column, cell in zip(self.columns, row, strict=True):
                if isinstance(cell, Estimate):
                    fields += [repr(cell.mean), "" if math.isnan(cell.sem) else repr(cell.sem)]
                else:
                    fields += [cell if isinstance(cell, str) else repr(cell)] + [""] * (column.key in estimates)
            writer.writerow(fields)
        return out.getvalue()

    def markdown(self) -> str:
        """For report.md."""
        lines = [self._line([c.title for c in self.columns]), self._line(["---"] * len(self.columns))]
        for texts in self._texts("**{}**", escape_markdown):
            lines.append(self._line(texts))
        return "\n".join(lines)

    def latex(self) -> str:
        r"""For a paper; needs the package booktabs."""
        body = [" & ".join(_latex_escape(c.title) for c in self.columns) + r" \\", r"\midrule"]
        for texts in self._texts(r"\textbf{{{}}}", _latex_escape):
            body.append(" & ".join(texts) + r" \\")
        align = "l" + "r" * (len(self.columns) - 1)
        top = [r"\begin{table}", r"\centering", rf"\caption{{{_latex_escape(self.caption)}}}"]
        end = [r"\bottomrule", r"\end{tabular}", r"\end{table}", ""]
        return "\n".join([*top, rf"\begin{{tabular}}{{{align}}}", r"\toprule", *body, *end])

    def html(self) -> str:
        """For the page."""
        head = "".join(f"<th>{escape(c.title)}</th>" for c in self.columns)
        rows = ["".join(f"<td>{text}</td>" for text in texts) for texts in self._texts("<b>{}</b>", escape)]
        body = "\n".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table>\n<caption>{escape(self.caption)}</caption>\n<tr>{head}</tr>\n{body}\n</table>"

    def _texts(self, bold: str, escaped: Callable[[str], str] = str) -> list[list[str]]:
        found = []
        for i, row in enumerate(self.rows):
            texts = []
            for column, cell in zip(self.columns, row, strict=True):
                text = escaped(format_cell(cell, column))
                texts.append(bold.format(text) if (i, column.key) in self.bold else text)
            found.append(texts)
        return found

    @staticmethod
    def _line(texts: Sequence[str]) -> str:
        return "| " + " | ".join(texts) + " |"


def format_cell(cell: Cell, column: Column) -> str:
    """A cell as text: mean ± SEM with the column's digits."""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Estimate):
        mean = f"{cell.mean * column.scale:.{column.digits}f}"
        return mean if math.isnan(cell.sem) else f"{mean} ± {cell.sem * column.scale:.{column.digits}f}"
    return "–" if math.isnan(cell) else f"{cell * column.scale:.{column.digits}f}"


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
    }
    return "".join(replacements.get(letter, letter) for letter in text)

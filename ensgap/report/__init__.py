"""The report of a study: tables, figures, a page, and a summary for programs."""

from ensgap.report.write import write_report

__all__ = ["write_report"]

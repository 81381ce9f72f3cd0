"""What `ensgap.tune` returns: both optima, the gap, the report, and the trained ensemble on request."""

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from ensgap.folder import StudyFolder
from ensgap.gap import Estimate
from ensgap.hyperparameters import Value, in_words
from ensgap.report import write_report
from ensgap.report.report import say_scaled_down
from ensgap.report.tune import headline
from ensgap.report.words import unit_of
from ensgap.results.optima import SettingFigures, StudyResults
from ensgap.tasks import Task

if TYPE_CHECKING:
    from ensgap.ensemble import Ensemble
    from ensgap.fit import Calibration


class Gap(dict[str, Estimate]):
    """The optimality gap in every metric: `gap.nll`, `gap.error` and so on."""

    def __getattr__(self, metric: str) -> Estimate:
        if metric not in self:
            raise AttributeError(f"the gap has {', '.join(self)}, not {metric}")
        return self[metric]

    def __str__(self) -> str:
        return "\n".join(f"{metric}: {estimate}" for metric, estimate in self.items())

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><td>{m}</td><td>{e._repr_html_()}</td></tr>" for m, e in self.items())
        return f"<table><tr><th>metric</th><th>optimality gap</th></tr>{rows}</table>"


@dataclass(frozen=True, repr=False)
class TuneResult:
    """A finished study."""

    results: StudyResults
    folder: StudyFolder
    task: Task

    @property
    def h_ind(self) -> dict[str, Value]:
        """The setting that is best for the average member."""
        return dict(self.results.h_ind.setting)

    @property
    def h_ens(self) -> dict[str, Value]:
        """The setting that is best for the ensemble."""
        return dict(self.results.h_ens.setting)

    @property
    def gap(self) -> Gap:
        """Test loss of the ensemble at h_ind minus at h_ens, by metric; positive: tuning for the ensemble paid off."""
        return Gap(self.results.gap)

    @property
    def _gap(self) -> Estimate:
        return self.gap[self.results.objective]

    @property
    def trials(self) -> pd.DataFrame:
        """Every setting that was tried, with its mean validation figures."""
        return pd.DataFrame([_row(trial) for trial in self.results.trials])

    def report(self, path: str | Path | None = None) -> Path:
        """Write the report (tables, figures, page) there, or where the study is; where its page is."""
        write_report(self.folder, None if path is None else Path(path))
        return (self.folder.report if path is None else Path(path)) / "report.html"

    def fit(
        self,
        which: Literal["ens", "ind"] = "ens",
        calibrate: "Calibration | None" = "joint",
        data: Literal["all", "pool"] = "all",
    ) -> "Ensemble":
        """Train the ensemble to take home, at the setting that is best for the ensemble (or the average member).

        It is trained on all data, the test data too, so measure nothing on it that was among them; `data="pool"` leaves
        the test data out. The temperature is fitted on what the search's ensembles of this setting predicted at the
        points they held out, for there is no holdout left.
        """
        from ensgap.fit import fit

        return fit(self.results, self.folder, self.task, which, calibrate, data)

    def __str__(self) -> str:
        unit = unit_of(self.results.objective)
        lines = [f"h_ind: {in_words(self.h_ind)}", f"h_ens: {in_words(self.h_ens)}", f"gap:   {self._gap} {unit}"]
        return "\n".join([self._answer(), "", *lines])

    def __repr__(self) -> str:
        return str(self)

    def _answer(self) -> str:
        return say_scaled_down(self.results.config, headline(self.results))

    def _repr_html_(self) -> str:
        rows = [("best for the average member", in_words(self.h_ind)), ("best for the ensemble", in_words(self.h_ens))]
        body = "".join(f"<tr><td>{title}</td><td>{escape(text)}</td></tr>" for title, text in rows)
        unit = unit_of(self.results.objective)
        body += f"<tr><td>optimality gap, {unit}</td><td>{self._gap._repr_html_()}</td></tr>"
        return f"<p>{escape(self._answer())}</p><table>{body}</table>"


def _row(trial: SettingFigures) -> dict[str, Any]:
    figures = {name: float(values.mean()) for name, values in trial.figures.items()}
    return dict(trial.setting) | {"status": trial.status} | figures

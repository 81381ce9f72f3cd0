"""A smooth guess at what lies between the settings that were tried: a Gaussian process, for slices through optima."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ensgap.gap import Array
from ensgap.hyperparameters import Setting
from ensgap.report.importance import Axis, calm
from ensgap.results.optima import SettingFigures

STEPS = 60


@dataclass(frozen=True)
class Surrogate:
    """A figure as a function of the setting."""

    axes: Sequence[Axis]
    low: Array
    high: Array
    process: Any

    @classmethod
    def fit(cls, trials: Sequence[SettingFigures], axes: Sequence[Axis], figure: str) -> "Surrogate | None":
        """From the means over replicates; none where there are too few settings for so many hyperparameters."""
        if len(trials) < 2 * len(axes) + 3:
            return None
        import warnings

        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import Matern, WhiteKernel

        places = np.array([_places(axes, trial.setting) for trial in trials])
        low, high = np.nanmin(places, 0), np.nanmax(places, 0)
        values = calm([float(trial.figures[figure].mean()) for trial in trials])
        kernel = Matern(np.ones(len(axes)), (0.1, 30.0), nu=2.5) + WhiteKernel(0.05, (1e-4, 1.0))
        process = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=1, random_state=0)
        with warnings.catch_warnings(action="ignore"):  # that a length scale is at its bound: the axis does not matter
            process.fit(_scaled(places, low, high), values)
        return cls(axes, low, high, process)

    def slice(self, at: Setting, axis: Axis) -> tuple[Array, Array, Array]:
        """Along one hyperparameter, the others as in the setting: places, the guess, and its standard deviation."""
        i = [a.name for a in self.axes].index(axis.name)
        count = len(axis.words) or STEPS
        rows = np.tile(_places(self.axes, at), (count, 1))
        rows[:, i] = np.linspace(self.low[i], self.high[i], count)
        mean, deviation = self.process.predict(_scaled(rows, self.low, self.high), return_std=True)
        return rows[:, i], mean, deviation


def _places(axes: Sequence[Axis], setting: Setting) -> list[float]:
    return [axis.place(setting[axis.name]) if axis.name in setting else np.nan for axis in axes]


def _scaled(places: Array, low: Array, high: Array) -> Array:
    """To 0…1; what a setting does not have stands in the middle."""
    scaled: Array = np.nan_to_num((places - low) / (high - low), nan=0.5)
    return scaled

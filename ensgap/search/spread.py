"""A sampler that keeps its distance: with many trials in flight TPE suggests points next to each other.

Optuna's constant liar alone does not prevent it: with 32 trials in flight, two of 96 suggestions over four decades were
0.006% apart. So a suggestion that is too near to another trial is drawn again.
"""

import math
from collections.abc import Mapping
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

DRAWS = 12
NEAR = 0.01
"""Nearer than this share of a parameter's range is a near-duplicate, while there are few trials."""


class SpreadSampler(BaseSampler):
    """Draws whole points from another sampler, again if one is near a trial that runs or has ended; when the space is
    too full for that, the draw that is farthest from all of them.
    """

    def __init__(self, inner: BaseSampler, space: Mapping[str, BaseDistribution]) -> None:
        self.inner, self.space = inner, dict(space)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """All of it, so that points are drawn whole."""
        return self.space

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The point to try."""
        if "fixed_params" in trial.system_attrs:  # it was asked for, so whatever is drawn is not used
            return {}
        others = [
            t.params
            for t in study.get_trials(deepcopy=False)
            if t.number != trial.number and t.state != TrialState.FAIL
        ]
        others = [params for params in others if params.keys() >= search_space.keys()]
        enough = min(NEAR, 1 / (4 * (len(others) + 1)))
        best: tuple[float, dict[str, Any]] = (-1.0, {})
        for _ in range(DRAWS):
            point = self._draw(study, trial)
            best = max(best, (_nearest(point, others, search_space), point), key=lambda drawn: drawn[0])
            if best[0] >= enough:
                break
        return best[1]

    def _draw(self, study: Study, trial: FrozenTrial) -> dict[str, Any]:
        joint = self.inner.infer_relative_search_space(study, trial)
        point = self.inner.sample_relative(study, trial, joint)
        for name, distribution in self.space.items():
            if name not in point:
                point[name] = self.inner.sample_independent(study, trial, name, distribution)
        return point

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """A single parameter; asked only for points that are given in part."""
        return self.inner.sample_independent(study, trial, param_name, param_distribution)


def _nearest(point: Mapping[str, Any], others: list[dict[str, Any]], space: Mapping[str, BaseDistribution]) -> float:
    return min((distance(point, other, space) for other in others), default=math.inf)


def distance(a: Mapping[str, Any], b: Mapping[str, Any], space: Mapping[str, BaseDistribution]) -> float:
    """How far apart two points are: the largest difference of a parameter, as a share of its range on its scale."""
    return max(_apart(a[name], b[name], distribution) for name, distribution in space.items())


def _apart(a: Any, b: Any, distribution: BaseDistribution) -> float:
    if isinstance(distribution, CategoricalDistribution):
        return float(a != b)
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    low, high = distribution.low, distribution.high
    if distribution.log:
        a, b, low, high = math.log(a), math.log(b), math.log(low), math.log(high)
    return abs(a - b) / (high - low) if high > low else 0.0

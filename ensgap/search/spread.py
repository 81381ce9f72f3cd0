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

    The space is what all trials so far have in common; what depends on other values is left to the other sampler.
    """

    def __init__(self, inner: BaseSampler) -> None:
        self.inner = inner

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """What all trials have in common."""
        spaces = [other.distributions.items() for other in _others(study, trial)]
        common = set(spaces[0]).intersection(*spaces[1:]) if spaces else set()
        return dict(sorted(common, key=lambda item: item[0]))

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The point to try."""
        if "fixed_params" in trial.system_attrs or not search_space:  # it was asked for, or it is the first
            return {}
        others = [other.params for other in _others(study, trial)]
        enough = min(NEAR, 1 / (4 * (len(others) + 1)))
        best: tuple[float, dict[str, Any]] = (-1.0, {})
        for _ in range(DRAWS):
            point = self._draw(study, trial, search_space)
            best = max(best, (_nearest(point, others, search_space), point), key=lambda drawn: drawn[0])
            if best[0] >= enough:
                break
        return best[1]

    def _draw(self, study: Study, trial: FrozenTrial, space: Mapping[str, BaseDistribution]) -> dict[str, Any]:
        joint = self.inner.infer_relative_search_space(study, trial)
        point = self.inner.sample_relative(study, trial, joint)
        return {
            name: point[name] if name in point else self.inner.sample_independent(study, trial, name, distribution)
            for name, distribution in space.items()
        }

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """A single parameter, of points that are given in part or whose parameters depend on each other."""
        return self.inner.sample_independent(study, trial, param_name, param_distribution)


def _others(study: Study, trial: FrozenTrial) -> list[FrozenTrial]:
    trials = study.get_trials(deepcopy=False)
    return [t for t in trials if t.number != trial.number and t.state != TrialState.FAIL and t.params]


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

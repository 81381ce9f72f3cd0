"""Greedy ensemble selection: an ensemble from whatever members there are, the most useful one first.

From the members of all settings of a search it makes the hyper-deep ensemble of what was trained anyway.
"""

import numpy as np

from ensgap.gap import Array
from ensgap.holdout import stratified_order


def choose(log_likelihoods: Array, size: int, replacement: bool = False) -> list[int]:
    """So many of the candidates, each the one that lowers the NLL of the average of those before it and itself most.

    `log_likelihoods` [candidates, points] are what each gives the label of each point. The order is that of choice, so
    a shorter ensemble is a beginning of it. Without replacement nobody is chosen twice.
    """
    candidates, points = log_likelihoods.shape
    if size > candidates and not replacement:
        raise ValueError(f"{size} of {candidates} candidates cannot be chosen without replacement")
    total = np.full(points, -np.inf)
    free = np.ones(candidates, dtype=bool)
    chosen: list[int] = []
    for _ in range(size):
        together = np.logaddexp(total, log_likelihoods).mean(-1)  # [candidates]
        best = int(np.where(free, together, -np.inf).argmax())
        chosen.append(best)
        free[best] = replacement
        total = np.logaddexp(total, log_likelihoods[best])
    return chosen


def nll_by_size(log_likelihoods: Array) -> Array:  # [members, points] -> [sizes]
    """NLL of the ensembles of the first one, the first two, … of them."""
    sums = np.logaddexp.accumulate(log_likelihoods, axis=0)
    nll: Array = np.log(np.arange(1, len(sums) + 1)) - sums.mean(-1)
    return nll


def halves(labels: Array, seed: int) -> tuple[Array, Array]:
    """The places of the points in two random, stratified halves: what one half chooses is measured at the other."""
    order = stratified_order(labels, np.random.default_rng(seed))
    return np.sort(order[::2]), np.sort(order[1::2])

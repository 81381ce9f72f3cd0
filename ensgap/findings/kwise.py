"""Choosing the weight decay by a k-wise NLL, and how often that is what the full ensemble would have chosen.

Twice: emulated from searches with a shared holdout, whose members all predicted all validation points, and with real
holdouts of order k.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ensgap.findings.searches import Search, group_nll
from ensgap.gap import Array, Choice, Estimate, select

CUTS = 50
RESAMPLES = 500


@dataclass(frozen=True)
class Emulated:
    """Order k of one search, against the full ensemble's choice on the same points."""

    order: int
    same: Estimate  # share of cuts that choose the same setting from one replicate, over replicates
    regret: Estimate  # the full ensemble's validation NLL at that choice minus at its own
    same_groups: Estimate  # the same without the noise of a cut: every k neighbours judge every point
    regret_groups: Estimate
    same_all: float  # share of resamples of all replicates, each with a cut, that choose the same from their mean
    weight_decay: float  # chosen by the mean over all replicates and cuts


def cut_nll(nll: Tensor, cuts: int = CUTS) -> Array:  # [settings, replicates, groups, points] -> [settings, reps, cuts]
    """The k-wise NLL under a cyclic holdout: points are cut into M chunks at random, and group c judges chunk c."""
    settings, replicates, groups, points = nll.shape
    generator = torch.Generator().manual_seed(0)
    found = []
    for _ in range(cuts):
        shuffled = torch.rand(replicates, points, generator=generator).argsort(1)
        chunk = shuffled * groups // points  # equal chunks
        judged = nll.gather(2, chunk[None, :, None, :].expand(settings, -1, 1, -1)).squeeze(2)
        found.append(judged.mean(-1))
    return torch.stack(found, -1).numpy()


def emulate(log_likelihoods: Tensor, weight_decays: Sequence[float]) -> list[Emulated]:
    """Every order 1…M from what every member gives every label, [settings, replicates, members, points]."""
    orders = dict(group_nll(log_likelihoods))
    full = orders[max(orders)][:, :, 0].mean(-1).numpy()  # [settings, replicates]
    best = full.argmin(0)  # [replicates]
    replicates = full.shape[1]
    each = np.arange(replicates)
    rng = np.random.default_rng(0)
    draws = rng.integers(replicates, size=(RESAMPLES, replicates))
    chosen_cut = rng.integers(CUTS, size=RESAMPLES)
    full_choice = full[:, draws].mean(-1).argmin(0)  # [resamples]
    found = []
    for order, nll in orders.items():
        cuts, groups = cut_nll(nll), nll.mean((2, 3)).numpy()
        picked, picked_groups = cuts.argmin(0), groups.argmin(0)  # [replicates, cuts], [replicates]
        regret = (full[picked, each[:, None]] - full[best, each][:, None]).mean(1)
        resampled = cuts[:, draws, chosen_cut[:, None]].mean(-1).argmin(0)
        found.append(
            Emulated(
                order,
                Estimate.of((picked == best[:, None]).mean(1)),
                Estimate.of(regret),
                Estimate.of((picked_groups == best).astype(float)),
                Estimate.of(full[picked_groups, each] - full[best, each]),
                float((resampled == full_choice).mean()),
                weight_decays[int(cuts.mean((1, 2)).argmin())],
            )
        )
    return found


@dataclass(frozen=True)
class Real:
    """What a search with a holdout of order k chose, and what that costs the full ensemble."""

    order: int
    members: int
    points: int  # that are judged by k members each
    replicates: int
    h_ind: float
    h_ens: float
    choice: Choice
    regret: Estimate  # validation NLL of the search with a shared holdout, at h_ens minus at its own choice


def real_orders(searches: Sequence[Search]) -> list[list[Real]]:
    """Searches that differ in the order of their holdouts only, compared at the replicates they share; one list per
    such family that has a shared holdout.
    """
    families: dict[tuple[object, ...], list[Search]] = {}
    for search in searches:
        config = search.config
        same = (search.task, search.members, config["val_fraction"], config["epochs"], config["lr"], config["seed"])
        families.setdefault((*same, tuple(search.weight_decays), config["train_fraction"]), []).append(search)
    found = []
    for family in families.values():
        by_order = {search.order: search for search in sorted(family, key=lambda s: len(s.replicates))}
        shared = by_order.get(family[0].members)
        if shared is not None and len(by_order) > 1:
            common = sorted(set.intersection(*(set(search.replicates) for search in by_order.values())))
            found.append([_real(by_order[order], shared, common) for order in sorted(by_order)])
    return found


def _real(search: Search, shared: Search, replicates: Sequence[int]) -> Real:
    avg_member, ensemble = search.nll(replicates)
    selection = select([*avg_member], [*ensemble], [False] * len(search.trials))
    _, full = shared.nll(shared.replicates)
    regret = Estimate.of(full[selection.ens.trial] - full[int(full.mean(1).argmin())])
    points = search.trials[0].held.shape[-1]
    return Real(
        search.order,
        search.members,
        points,
        len(replicates),
        search.weight_decays[selection.ind.trial],
        search.weight_decays[selection.ens.trial],
        selection.ens,
        regret,
    )

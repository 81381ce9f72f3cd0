"""Random streams: every member, and every replicate's holdout, has its own, whatever it is trained next to."""

from collections.abc import Sequence

import numpy as np
import torch

INIT, ORDER, HOLDOUT, POOL, SLOW, NOISE = range(6)
"""The streams: a member's initial weights, the order and augmentation of its data, a replicate's holdout, a study's
share of the pool, the weights that the members of a replicate's BatchEnsemble share, and what a member draws in its
forward passes, as dropout does."""


def derive_seed(seed: int, *path: int) -> int:
    """A 63-bit seed for a place in the tree of streams; different paths give independent seeds."""
    state = np.random.SeedSequence(entropy=seed, spawn_key=path).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))


def member_generators(
    seed: int, replicates: Sequence[int], members: int, stream: int, device: torch.device | str = "cpu"
) -> list[torch.Generator]:
    """One generator for each of the E·M members of a stack, replicate by replicate."""
    return [
        torch.Generator(device).manual_seed(derive_seed(seed, replicate, stream, member))
        for replicate in replicates
        for member in range(members)
    ]

"""The embedded task."""

from typing import Any

import torch

from ensgap.seeds import INIT, member_generators
from ensgap.stack import OptimizerConfig
from ensgap.tasks import TASKS, get_task


def test_the_real_digits_in_a_fixed_stratified_split() -> None:
    task = get_task("digits")
    data: Any
    again: Any
    data, again = task.load(None), task.load(None)
    assert (len(data.pool), len(data.test)) == (898, 899)
    assert torch.equal(data.pool.inputs, again.pool.inputs)
    counts = torch.stack([data.pool.labels.bincount(), data.test.labels.bincount()])
    assert (counts[0] - counts[1]).abs().max() <= 1
    assert data.pool.inputs.min() == 0
    assert data.pool.inputs.max() == 1
    rows = {tuple(row.tolist()) for row in data.pool.inputs}
    assert not any(tuple(row.tolist()) in rows for row in data.test.inputs)


def test_the_networks_output_has_a_logit_per_class() -> None:
    task = get_task("digits")
    generators = member_generators(0, (0,), 3, INIT)
    stack = task.stack(generators, OptimizerConfig("sgd", [0.1] * 3, [0.0] * 3), torch.device("cpu"))
    pool = task.load(None).pool
    logits = stack.logits(pool.gather(torch.arange(12).view(3, 4)))
    assert logits.shape == (3, 4, task.classes)


def test_grids_have_zero_and_enough_values() -> None:
    for task in TASKS.values():
        assert task.defaults.grid[0] == 0
        assert list(task.defaults.grid) == sorted(set(task.defaults.grid))
        assert len(task.defaults.grid) >= 12

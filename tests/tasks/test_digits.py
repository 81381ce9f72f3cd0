"""The embedded task."""

import torch

from ensgap.seeds import INIT, member_generators
from ensgap.tasks import TASKS, get_task


def test_the_real_digits_in_a_fixed_stratified_split() -> None:
    task = get_task("digits")
    data, again = task.load(None), task.load(None)
    assert (len(data.pool), len(data.test)) == (898, 899)
    assert torch.equal(data.pool.inputs, again.pool.inputs)
    counts = torch.stack([data.pool.labels.bincount(), data.test.labels.bincount()])
    assert (counts[0] - counts[1]).abs().max() <= 1
    assert data.pool.inputs.min() == 0
    assert data.pool.inputs.max() == 1
    rows = {tuple(row.tolist()) for row in data.pool.inputs}
    assert not any(tuple(row.tolist()) in rows for row in data.test.inputs)


def test_the_network_fits_the_data() -> None:
    task = get_task("digits")
    network = task.network(member_generators(0, (0,), 3, INIT))
    pool = task.load(None).pool
    logits = network(pool.gather(torch.arange(12).view(3, 4)))
    assert logits.shape == (3, 4, task.classes)


def test_grids_have_zero_and_enough_values() -> None:
    for task in TASKS.values():
        assert task.grid[0] == 0
        assert list(task.grid) == sorted(set(task.grid))
    assert len(TASKS["digits"].grid) >= 12

"""What a trial computes with follows the device: on `meta`, which holds no data, a stray CPU tensor is an error."""

from pathlib import Path

import pytest
import torch

from ensgap.tasks import get_task
from tests.made_data import make_all

META = torch.device("meta")


@pytest.mark.parametrize("name", ["digits", "cifar10", "nci1", "covertype", "ag_news"])
def test_batches_and_networks_follow_the_device(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_all(tmp_path, monkeypatch)
    task = get_task(name)
    pool = task.load(tmp_path).pool.to(META)
    index = torch.arange(24).view(2, 12)
    generators = [torch.Generator().manual_seed(m) for m in range(2)]
    inputs = task.prepare(pool, index)(pool.gather(index), generators)
    with META:
        networks = [task.stacked(2), *([task.batch_ensemble(1, 2)] if task.batch_ensemble else [])]
    for network in networks:
        logits = network.train()(inputs)
        assert logits.device == META
        assert logits.shape == (2, 12, task.classes)
        assert all(g.device == META for g in torch.autograd.grad(logits.sum(), list(network.parameters())))

"""The embedded task: scikit-learn's 1,797 real 8×8 digits and a small MLP, so that a study needs no download."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Generator, nn

from ensgap.networks.mlp import StackedMLP
from ensgap.tasks.task import Points, Task, TaskData, log_spaced
from ensgap.train import TrainConfig


def load(_: Path | None) -> TaskData:
    """The digits, scaled to 0…1; a fixed half of them, stratified, is the test data."""
    from sklearn.datasets import load_digits  # here, because trials need the task but not scikit-learn
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    x = torch.tensor(digits.data / 16.0, dtype=torch.float32)
    y = torch.tensor(digits.target, dtype=torch.int64)
    pool, test = train_test_split(range(len(y)), test_size=0.5, stratify=y.numpy(), random_state=0)
    return TaskData(Points(x[pool], y[pool]), Points(x[test], y[test]))


def network(generators: Sequence[Generator]) -> nn.Module:
    """64 → 128 → 128 → 10."""
    return StackedMLP(generators, inputs=64, hidden=(128, 128), classes=10)


DIGITS = Task(
    name="digits",
    title="scikit-learn digits / MLP",
    classes=10,
    load=load,
    network=network,
    train=TrainConfig(optimizer="sgd", lr=0.1, schedule="cosine", epochs=40),
    members=8,
    replicates=5,
    test_replicates=20,
    val_fraction=0.5,
    grid=(0.0, *log_spaced(10**-4.5, 10**-1.5, 13)),
)

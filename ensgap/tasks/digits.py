"""The embedded task: scikit-learn's 1,797 real 8×8 digits and a small MLP, so that a study needs no download."""

from pathlib import Path

import torch
from torch import Generator, nn

from ensgap.networks.mlp import MLP, StackedMLP, batch_ensemble_mlp
from ensgap.points import TensorPoints
from ensgap.tasks.task import Defaults, DesignDefaults, Task, TaskData, log_spaced
from ensgap.train import TrainConfig


def load(_: Path | None) -> TaskData:
    """The digits, scaled to 0…1; a fixed half of them, stratified, is the test data."""
    from sklearn.datasets import load_digits  # here, because trials need the task but not scikit-learn
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    points = TensorPoints(
        torch.tensor(digits.data / 16.0, dtype=torch.float32), torch.tensor(digits.target, dtype=torch.int64)
    )
    pool, test = train_test_split(range(len(points)), test_size=0.5, stratify=points.labels.numpy(), random_state=0)
    return TaskData(points.subset(torch.tensor(pool)), points.subset(torch.tensor(test)))


def member(generator: Generator | None = None) -> nn.Module:
    """64 → 128 → 128 → 10."""
    return MLP(64, (128, 128), 10, generator)


def stacked(members: int) -> nn.Module:
    """The same, batched."""
    return StackedMLP(members, 64, (128, 128), 10)


def batch_ensemble(ensembles: int, members: int) -> nn.Module:
    """The same with shared weights."""
    return batch_ensemble_mlp(ensembles, members, 64, (128, 128), 10)


DIGITS = Task(
    name="digits",
    title="scikit-learn digits / MLP",
    classes=10,
    load=load,
    member=member,
    stacked=stacked,
    batch_ensemble=batch_ensemble,
    loop_on_cpu=False,
    defaults=Defaults(
        train=TrainConfig(optimizer="sgd", lr=0.1, schedule="cosine", epochs=40),
        members=8,
        replicates=5,
        test_replicates=20,
        val_fraction=0.5,
        grid=(0.0, *log_spaced(10**-4.5, 10**-1.5, 13)),
    ),
    design=DesignDefaults(
        weight_decay=3.162e-3,
        val_fractions=(0.02, 0.05, 0.1, 0.2),
        stopping_lr=5e-3,  # for a study of minutes
        batch_ensemble_fraction=0.1,
    ),
)

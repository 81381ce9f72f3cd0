"""The embedded regression: scikit-learn's 442 diabetes patients and a small MLP with Gaussian outputs."""

from pathlib import Path

import torch
from torch import Generator, nn

from ensgap.networks.mlp import MLP, StackedMLP
from ensgap.points import TensorPoints, standardize
from ensgap.tasks.task import Defaults, DesignDefaults, Task, TaskData, log_spaced
from ensgap.train import TrainConfig

HIDDEN = (64, 64)


def load(_: Path | None) -> TaskData:
    """The patients, as measured; a fixed third of them is the test data. The target is a measure of progression a year
    later, from 25 to 346.
    """
    from sklearn.datasets import load_diabetes  # here, because trials need the task but not scikit-learn
    from sklearn.model_selection import train_test_split

    patients = load_diabetes(scaled=False)
    points = TensorPoints(
        torch.tensor(patients.data, dtype=torch.float32), torch.tensor(patients.target, dtype=torch.float32)
    )
    pool, test = train_test_split(range(len(points)), test_size=1 / 3, random_state=0)
    return TaskData(points.subset(torch.tensor(pool)), points.subset(torch.tensor(test)))


def member(generator: Generator | None = None) -> nn.Module:
    """10 → 64 → 64 → mean and variance."""
    return MLP(10, HIDDEN, 2, generator)


def stacked(members: int) -> nn.Module:
    """The same, batched."""
    return StackedMLP(members, 10, HIDDEN, 2)


DIABETES = Task(
    name="diabetes",
    title="scikit-learn diabetes (regression) / MLP",
    classes=2,
    loss="regression",
    load=load,
    member=member,
    stacked=stacked,
    prepare=standardize,
    loop_on_cpu=False,
    defaults=Defaults(
        train=TrainConfig(optimizer="sgd", lr=0.03, schedule="cosine", epochs=40, batch_size=32),
        members=8,
        replicates=5,
        test_replicates=20,
        val_fraction=0.3,
        grid=(0.0, *log_spaced(10**-1.5, 10**-0.25, 11)),
    ),
    design=DesignDefaults(weight_decay=0.1, val_fractions=(0.1, 0.2, 0.5)),
)

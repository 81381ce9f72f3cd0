"""Covertype (UCI): 581,012 patches of forest, 54 features, 7 classes, and an MLP with three hidden layers of 1,024."""

import io
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Generator, nn

from ensgap.networks.mlp import MLP, StackedMLP, batch_ensemble_mlp
from ensgap.points import TensorPoints, standardize
from ensgap.tasks.files import check_md5, damaged, data_root, fetch_once, read_bytes
from ensgap.tasks.task import PAPER_SHARES, Defaults, DesignDefaults, Task, TaskData, log_spaced
from ensgap.train import TrainConfig

COLUMNS = 55
CONTENT_MD5 = "71df19898bd3e11db15ae0faf4159f2c"
WIDTH, LAYERS = 1024, 3


def _download(folder: Path) -> None:
    from sklearn.datasets import fetch_covtype

    data = fetch_covtype(data_home=str(folder / "scikit-learn"))
    rows = np.column_stack([data.data, data.target]).astype(np.int64)
    np.savetxt(folder / "covtype.data.gz", rows, fmt="%d", delimiter=",")
    shutil.rmtree(folder / "scikit-learn")


def read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Features [points, 54] and classes 0…6 of the official file."""
    import pandas as pd

    content = check_md5(path, read_bytes(path), CONTENT_MD5)
    table = pd.read_csv(io.BytesIO(content), header=None)
    if table.shape[1] != COLUMNS:
        raise damaged(path, f"it has {table.shape[1]} columns instead of {COLUMNS}")
    values = table.to_numpy(dtype=np.float32)
    return values[:, :-1], values[:, -1].astype(np.int64) - 1


def load(data_dir: Path | None) -> TaskData:
    """A fixed fifth of the points, stratified, is the test data."""
    from sklearn.model_selection import train_test_split

    folder = data_root(data_dir) / "covtype"
    fetch_once(folder, lambda f: (f / "covtype.data.gz").exists(), _download, "Covertype")
    x, y = read(folder / "covtype.data.gz")
    points = TensorPoints(torch.from_numpy(x), torch.from_numpy(y))
    pool, test = train_test_split(np.arange(len(y)), test_size=0.2, stratify=y, random_state=0)
    return TaskData(points.subset(torch.from_numpy(pool)), points.subset(torch.from_numpy(test)))


def member(generator: Generator | None = None, layers: int = LAYERS, width: int = WIDTH) -> nn.Module:
    """54 → 1024 → 1024 → 1024 → 7."""
    return MLP(54, (width,) * layers, 7, generator)


def stacked(members: int, layers: int = LAYERS, width: int = WIDTH) -> nn.Module:
    """The same, batched."""
    return StackedMLP(members, 54, (width,) * layers, 7)


def batch_ensemble(ensembles: int, members: int, layers: int = LAYERS, width: int = WIDTH) -> nn.Module:
    """The same with shared weights."""
    return batch_ensemble_mlp(ensembles, members, 54, (width,) * layers, 7)


def with_layers(layers: int) -> Task:
    """The paper's text has three hidden layers, its code four."""
    deeper = replace(COVERTYPE, name=f"covertype-{layers}", title=f"Covertype / MLP with {layers} hidden layers")
    return replace(_with_network(deeper, layers, WIDTH), scaled_down={"laptop": laptop(layers)})


def _with_network(task: Task, layers: int, width: int) -> Task:
    return replace(
        task,
        member=partial(member, layers=layers, width=width),
        stacked=partial(stacked, layers=layers, width=width),
        batch_ensemble=partial(batch_ensemble, layers=layers, width=width),
    )


def laptop(layers: int) -> Task:
    """Scaled down: a share of the data and hidden layers of 256, for studies of about 25 minutes on one core."""
    network = f"MLP {layers} × {LAPTOP_WIDTH}"
    smaller = replace(
        COVERTYPE,
        name=f"covertype-{layers}x{LAPTOP_WIDTH}",
        title=f"Covertype scaled down / {network}",
        smaller_network=network,
        defaults=LAPTOP,
        design=LAPTOP_DESIGN,
        presets={},
        scaled_down={},
        with_layers=None,
    )
    return _with_network(smaller, layers, LAPTOP_WIDTH)


PAPER = Defaults(
    train=TrainConfig(optimizer="sgd", lr=0.3, schedule="cosine", epochs=100),
    members=8,
    replicates=5,
    test_replicates=5,
    val_fraction=0.1,
    grid=(0.0, *log_spaced(1e-6, 1e-3, 13)),
)
LAPTOP_WIDTH = 256
# Measured on one core of a busy machine: a training of 8 members takes 41.1 s of CPU time (weight decay 1e-4), so the
# weight-decay study, of 37, about 25 minutes. Early stopping: 2 members took 7.9 s (38 epochs), so 27 trainings of 8
# about 15 to 20 minutes. At the full width of 1,024 an epoch takes about 14 times as long.
LAPTOP = Defaults(
    train=TrainConfig(optimizer="sgd", lr=0.3, schedule="cosine", epochs=40),
    members=8,
    replicates=3,
    test_replicates=5,
    val_fraction=0.1,
    grid=(0.0, *log_spaced(1e-5, 10**-2.5, 8)),
    train_fraction=0.03,
    test_fraction=0.02,
)
LAPTOP_DESIGN = DesignDefaults(
    weight_decay=1e-4,
    val_fractions=(0.05, 0.1, 0.2),
    stopping_lr=2e-3,
    temperature_replicates=3,
    stopping_replicates=3,
    stopping_epochs=60,
    batch_ensemble_fraction=0.1,
    train_fraction=0.02,
    test_fraction=0.02,
)
COVERTYPE = Task(
    name="covertype",
    title="Covertype / MLP",
    classes=7,
    load=load,
    member=member,
    stacked=stacked,
    batch_ensemble=batch_ensemble,
    loop_on_cpu=False,
    prepare=standardize,
    defaults=PAPER,
    design=DesignDefaults(weight_decay=5.62e-5, val_fractions=PAPER_SHARES, temperature_replicates=5),
    presets={"paper": PAPER},
    smoke_fraction=0.005,
    with_layers=with_layers,
)
COVERTYPE = replace(COVERTYPE, scaled_down={"laptop": laptop(LAYERS)})

"""CIFAR-10: 60,000 photographs of 32×32 pixels, 10 classes, and a Wide ResNet 16-4."""

import pickle
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from ensgap.networks.wide_resnet import StackedWideResNet, WideResNet, batch_ensemble_wide_resnet
from ensgap.points import Prepare, TensorPoints
from ensgap.tasks.files import check_md5, damaged, data_root, fetch_once, read_bytes
from ensgap.tasks.task import PAPER_SHARES, Defaults, DesignDefaults, Task, TaskData, log_spaced
from ensgap.train import TrainConfig

RECORD = 3073  # a label and 3 planes of 32 × 32
MD5 = {
    "data_batch_1": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
PADDING = 4


def _binary(folder: Path, name: str) -> Path | None:
    options = [folder / "cifar-10-batches-bin" / f"{name}.bin{ending}" for ending in ("", ".xz")]
    return next((path for path in options if path.exists()), None)


def _present(folder: Path) -> bool:
    return any(_binary(folder, name) for name in MD5) or (folder / "cifar-10-batches-py").exists()


def _download(folder: Path) -> None:
    """Through torchvision, with its progress bar and checksums."""
    from torchvision import datasets

    datasets.CIFAR10(str(folder), download=True)
    (folder / datasets.CIFAR10.filename).unlink()


def read_binary(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Images [points, 3, 32, 32] and labels of one file of the official binary version."""
    path = _binary(folder, name) or folder / "cifar-10-batches-bin" / f"{name}.bin"
    content = read_bytes(path)
    if not content or len(content) % RECORD:
        raise damaged(path, f"{len(content)} bytes are not a whole number of records of {RECORD}")
    records = np.frombuffer(check_md5(path, content, MD5[name]), np.uint8).reshape(-1, RECORD)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64)


def _read_torchvision(folder: Path, train: bool) -> TensorPoints:
    from torchvision import datasets

    try:
        data = datasets.CIFAR10(str(folder), train=train)
    except (RuntimeError, pickle.UnpicklingError, EOFError) as error:
        raise damaged(folder / "cifar-10-batches-py", str(error)) from None
    images = torch.from_numpy(np.ascontiguousarray(data.data.transpose(0, 3, 1, 2)))
    return TensorPoints(images, torch.tensor(data.targets))


def load(data_dir: Path | None) -> TaskData:
    """The official split, as bytes: 50,000 and 10,000 images."""
    folder = fetch_once(data_root(data_dir) / "cifar10", _present, _download, "CIFAR-10")
    if not any(_binary(folder, name) for name in MD5):
        return TaskData(_read_torchvision(folder, train=True), _read_torchvision(folder, train=False))
    parts = {name: read_binary(folder, name) for name in MD5}

    def points(names: Sequence[str]) -> TensorPoints:
        images, labels = (np.concatenate([parts[name][i] for name in names]) for i in (0, 1))
        return TensorPoints(torch.from_numpy(images), torch.from_numpy(labels))

    return TaskData(points([name for name in MD5 if name != "test_batch"]), points(["test_batch"]))


def augment(images: Tensor, generators: Sequence[Generator]) -> Tensor:
    """A random crop of the image padded by 4 zeros, and a flip half of the time: drawn for every image, from its
    member's generator. [members, batch, 3, 32, 32] bytes.
    """
    members, batch = images.shape[:2]
    drawn = torch.stack([torch.rand(batch, 3, generator=g) for g in generators]).to(images.device, non_blocking=True)
    offset = (drawn[..., :2] * (2 * PADDING + 1)).long()  # [members, batch, 2], 0…8
    place = torch.arange(32, device=images.device)
    rows = offset[..., :1] + place  # [members, batch, 32]
    columns = offset[..., 1:] + torch.where(drawn[..., 2:] < 0.5, 31 - place, place)
    width = 32 + 2 * PADDING
    flat = (rows.unsqueeze(-1) * width + columns.unsqueeze(-2)).view(members, batch, 1, -1).expand(-1, -1, 3, -1)
    padded = F.pad(images, (PADDING,) * 4).flatten(3)  # [members, batch, 3, 40 · 40]
    return padded.gather(3, flat).view_as(images)


def prepare(pool: TensorPoints, train_index: Tensor) -> Prepare:
    """Channels minus the mean, over the standard deviation, of each member's own training images."""
    pixels = pool.inputs.flatten(2)  # [images, 3, 1024]
    sums = torch.cat([piece.float().sum(2).double() for piece in pixels.split(1024)])  # [images, 3]
    squares = torch.cat([piece.float().square_().sum(2).double() for piece in pixels.split(1024)])
    count = pixels.shape[2]
    mean = torch.stack([sums[own].mean(0) / count for own in train_index])  # [members, 3]
    std = (torch.stack([squares[own].mean(0) / count for own in train_index]) - mean**2).sqrt()
    shape = (len(train_index), 1, 3, 1, 1)
    scale = (1 / std).float().view(shape)
    shift = (-mean / std).float().view(shape)

    def read(inputs: Tensor, generators: Sequence[Generator] | None) -> Tensor:
        images = inputs if generators is None else augment(inputs, generators)
        return torch.addcmul(shift, images.float(), scale)

    return read


def member(generator: Generator | None = None, depth: int = 16, widen: int = 4) -> nn.Module:
    """WRN-16-4: 2,748,890 parameters."""
    return WideResNet(depth, widen, classes=10, generator=generator)


def stacked(members: int, depth: int = 16, widen: int = 4) -> nn.Module:
    """The same, batched."""
    return StackedWideResNet(members, depth, widen, classes=10)


def batch_ensemble(ensembles: int, members: int, depth: int = 16, widen: int = 4) -> nn.Module:
    """The same with shared weights."""
    return batch_ensemble_wide_resnet(ensembles, members, depth, widen, classes=10)


PAPER = Defaults(
    train=TrainConfig(optimizer="sgd", lr=0.1, schedule="cosine", epochs=100),
    members=4,
    replicates=5,
    test_replicates=5,
    val_fraction=0.1,
    grid=(0.0, *log_spaced(1e-5, 1e-2, 13)),
)
CIFAR10 = Task(
    name="cifar10",
    title="CIFAR-10 / WRN-16-4",
    classes=10,
    load=load,
    member=member,
    stacked=stacked,
    batch_ensemble=batch_ensemble,
    loop_on_cpu=True,
    prepare=prepare,
    defaults=PAPER,
    design=DesignDefaults(weight_decay=7.5e-4, val_fractions=PAPER_SHARES),
    presets={"paper": PAPER},
    smoke_fraction=0.002,
)
# Measured on one core of a busy machine: a training of 4 members takes 47.4 s of CPU time (weight decay 3e-3), so the
# weight-decay study, of 34, about 27 minutes. What `design` has below was not measured; from the same time of an image,
# BatchEnsemble (30 trainings) would take about an hour, early stopping (27) as long.
LAPTOP = Defaults(
    train=TrainConfig(optimizer="sgd", lr=0.1, schedule="cosine", epochs=14),
    members=4,
    replicates=3,
    test_replicates=5,
    val_fraction=0.2,
    grid=(0.0, *log_spaced(3e-4, 3e-2, 7)),
    train_fraction=0.03,
    test_fraction=0.5,
)
LAPTOP_TASK = replace(
    CIFAR10,
    name="cifar10-wrn-10-1",
    title="CIFAR-10 scaled down / WRN-10-1",
    smaller_network="WRN-10-1",
    member=partial(member, depth=10, widen=1),
    stacked=partial(stacked, depth=10, widen=1),
    batch_ensemble=partial(batch_ensemble, depth=10, widen=1),
    defaults=LAPTOP,
    design=DesignDefaults(
        weight_decay=3e-3,
        val_fractions=(0.05, 0.1, 0.2),
        temperature_replicates=3,
        stopping_replicates=3,
        stopping_epochs=20,
        batch_ensemble_fraction=0.1,
        train_fraction=0.03,
        test_fraction=0.1,
    ),
    presets={},
)
CIFAR10 = replace(CIFAR10, scaled_down={"laptop": LAPTOP_TASK})

"""AG News: 120,000 headlines with their first lines, 4 topics, and a bidirectional LSTM on GPT-2's tokens."""

import csv
import hashlib
import io
import json
import shutil
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from filelock import FileLock
from torch import Generator, Tensor, nn

from ensgap.networks.bilstm import BiLSTM, StackedBiLSTM, TokenBatch
from ensgap.tasks.files import check_md5, damaged, data_root, fetch_once, read_bytes, writable_cache
from ensgap.tasks.task import PAPER_SHARES, Defaults, DesignDefaults, Task, TaskData, log_spaced
from ensgap.train import TrainConfig

SOURCE = "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/"
MD5 = {"train.csv": "b1a00f826fdfbd249f79597b59e1dc12", "test.csv": "d52ea96a97a2d943681189a97654912d"}
FULL = 120_000
VOCABULARY, EMBEDDING, HIDDEN, CLASSES = 50_257, 128, 256, 4
PAD = 0  # any token would do: padding changes nothing


@dataclass(frozen=True)
class TokenPoints:
    """Texts as tokens, one after the other."""

    tokens: Tensor  # [all tokens]
    starts: Tensor  # [texts + 1]; stays on the CPU, where batches are planned
    labels: Tensor  # [texts]

    def __len__(self) -> int:
        return len(self.labels)

    def gather(self, index: Tensor) -> TokenBatch:  # [members, batch]
        """Each member's texts, padded to the longest of them all."""
        index = index.cpu()
        lengths = self.starts[index + 1] - self.starts[index]
        place = torch.arange(int(lengths.max()))
        inside = place < lengths.unsqueeze(-1)
        where = torch.where(inside, self.starts[index].unsqueeze(-1) + place, 0)
        device = self.tokens.device
        tokens = self.tokens[where.to(device, non_blocking=True)].long()
        tokens = tokens.masked_fill_(~inside.to(device, non_blocking=True), PAD)
        return TokenBatch(tokens, lengths.to(device, non_blocking=True))

    def subset(self, index: Tensor) -> Self:
        """Just some of the texts."""
        pieces = [self.tokens[self.starts[i] : self.starts[i + 1]] for i in index.tolist()]
        starts = torch.tensor([0, *(len(p) for p in pieces)]).cumsum(0)
        return replace(self, tokens=torch.cat(pieces), starts=starts, labels=self.labels[index])

    def to(self, device: torch.device) -> Self:
        """On a device."""
        return replace(self, tokens=self.tokens.to(device), labels=self.labels.to(device))


def _download(folder: Path) -> None:
    from torchvision.datasets.utils import download_url

    for name, md5 in MD5.items():
        download_url(SOURCE + name, str(folder), name, md5)


def _tokenizer(root: Path) -> Any:
    from huggingface_hub import hf_hub_download
    from transformers import GPT2TokenizerFast  # type: ignore[attr-defined]

    folder, files = root / "gpt2", ("vocab.json", "merges.txt")

    def download(target: Path) -> None:
        for name in files:
            shutil.copyfile(hf_hub_download("openai-community/gpt2", name), target / name)

    fetch_once(folder, lambda f: all((f / name).exists() for name in files), download, "GPT-2's tokenizer")
    try:
        entries = len(json.loads((folder / "vocab.json").read_text(encoding="utf-8")))
    except ValueError as error:
        raise damaged(folder / "vocab.json", str(error)) from None
    if entries != VOCABULARY:
        raise damaged(folder / "vocab.json", f"it has {entries} entries instead of {VOCABULARY}")
    try:
        return GPT2TokenizerFast.from_pretrained(str(folder))
    except Exception as error:  # the vocabulary is whole, so it is the other file
        raise damaged(folder / "merges.txt", str(error).splitlines()[0]) from None


def read(path: Path) -> tuple[list[str], np.ndarray]:
    """Texts (title and description) and classes 0…3 of a csv file without a header."""
    content = read_bytes(path)
    if path.name in MD5:
        check_md5(path, content, MD5[path.name])
    try:
        rows = list(csv.reader(io.StringIO(content.decode())))
    except (UnicodeDecodeError, csv.Error) as error:
        raise damaged(path, str(error)) from None
    for line, row in enumerate(rows, start=1):
        if len(row) not in (2, 3) or row[0] not in ("1", "2", "3", "4"):
            raise damaged(path, f"line {line} is not a class from 1 to 4 followed by one or two texts")
    return [" ".join(row[1:]) for row in rows], np.array([int(row[0]) - 1 for row in rows])


def tokenize(path: Path, root: Path) -> TokenPoints:
    """A file's texts as tokens; done once, and kept beside the data."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    kept = writable_cache(root) / f"ag_news-{path.stem}-{digest}.npz"
    with FileLock(str(kept) + ".lock"):
        if not kept.exists():
            texts, labels = read(path)
            pieces = _tokenizer(root)(texts)["input_ids"]
            lengths = np.array([len(piece) for piece in pieces])
            tokens = np.concatenate([np.array(piece, dtype=np.int32) for piece in pieces])
            starts = np.concatenate([[0], lengths.cumsum()])
            temporary = kept.with_suffix(".tmp.npz")
            np.savez(temporary, allow_pickle=False, tokens=tokens, starts=starts, labels=labels)
            temporary.replace(kept)
        with np.load(kept, allow_pickle=False) as file:
            return TokenPoints(*(torch.from_numpy(file[name]) for name in ("tokens", "starts", "labels")))


def load(data_dir: Path | None) -> TaskData:
    """The official split, or, where only a part of the training texts is at hand, that part."""
    root = data_root(data_dir)

    def train_file(folder: Path) -> Path | None:
        found = [folder / "train.csv", *sorted(folder.glob("train_*.csv"))]
        return next((path for path in found if path.exists()), None)

    folder = fetch_once(root / "ag_news", lambda f: train_file(f) is not None, _download, "AG News")
    path = train_file(folder)
    assert path is not None
    if not (folder / "test.csv").exists():
        raise damaged(folder / "test.csv", "it is missing")
    pool, test = tokenize(path, root), tokenize(folder / "test.csv", root)
    part = f"Only {len(pool):,} of AG News's {FULL:,} training texts were at hand ({path.name})."
    return TaskData(pool, test, notes=(part,) if len(pool) < FULL else ())


def member(generator: Generator | None = None, embedding: int = EMBEDDING, hidden: int = HIDDEN) -> nn.Module:
    """7,225,988 parameters."""
    return BiLSTM(VOCABULARY, embedding, hidden, CLASSES, generator)


def stacked(members: int, embedding: int = EMBEDDING, hidden: int = HIDDEN) -> nn.Module:
    """The same, batched."""
    return StackedBiLSTM(members, VOCABULARY, embedding, hidden, CLASSES)


PAPER = Defaults(
    train=TrainConfig(optimizer="sgd", lr=0.1, schedule="cosine", epochs=100),
    members=8,
    replicates=5,
    test_replicates=5,
    val_fraction=0.1,
    grid=(0.0, *log_spaced(1e-6, 1e-3, 13)),
)
AG_NEWS = Task(
    name="ag_news",
    title="AG News / BiLSTM",
    classes=CLASSES,
    load=load,
    member=member,
    stacked=stacked,
    loop_on_cpu=True,
    defaults=PAPER,
    design=DesignDefaults(
        weight_decay=5.62e-5,
        val_fractions=PAPER_SHARES,
        stopping_lr=1e-4,
        temperature_replicates=5,
    ),
    presets={"paper": PAPER},
    smoke_fraction=0.01,
)
# Measured on one core of a busy machine: a training of 8 members takes 47.7 s of CPU time (weight decay 3e-4), so the
# weight-decay study, of 34, about 27 minutes. Early stopping: 2 members took 10.5 s (16 epochs), so 27 trainings of 8
# about 20 minutes. The paper's learning rates learn next to nothing in so few steps: these are 20 and 50 times as high.
LAPTOP = Defaults(
    train=TrainConfig(optimizer="sgd", lr=2.0, schedule="cosine", epochs=16),
    members=8,
    replicates=3,
    test_replicates=5,
    val_fraction=0.2,
    grid=(0.0, *log_spaced(3e-5, 3e-3, 7)),
    train_fraction=0.03,
    test_fraction=0.1,
)
LAPTOP_TASK = replace(
    AG_NEWS,
    name="ag_news-32",
    title="AG News scaled down / BiLSTM of 32",
    smaller_network="BiLSTM with embeddings and states of 32",
    member=partial(member, embedding=32, hidden=32),
    stacked=partial(stacked, embedding=32, hidden=32),
    defaults=LAPTOP,
    design=DesignDefaults(
        weight_decay=6e-4,
        val_fractions=(0.02, 0.05, 0.1, 0.2),
        stopping_lr=5e-3,
        temperature_replicates=3,
        stopping_replicates=3,
        stopping_epochs=40,
        train_fraction=0.02,
        test_fraction=0.1,
    ),
    presets={},
)
AG_NEWS = replace(AG_NEWS, scaled_down={"laptop": LAPTOP_TASK})

"""Small data sets of the right shape, in the layout of the real ones, made for tests."""

import gzip
import hashlib
import json
import lzma
from pathlib import Path

import numpy as np
import pytest

from ensgap.tasks import ag_news, cifar10, covertype, nci1


def make_all(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All four, and the checks that go with them."""
    _cifar10(root / "cifar10" / "cifar-10-batches-bin", monkeypatch)
    _nci1(root / "NCI1" / "raw", monkeypatch)
    _covertype(root / "covtype", monkeypatch)
    _ag_news(root / "ag_news", monkeypatch)
    _gpt2(root / "gpt2")


def _md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def _cifar10(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(parents=True)
    rng, sums = np.random.default_rng(0), {}
    for name in cifar10.MD5:
        count = 40 if name == "test_batch" else 20
        labels = np.arange(count) % 10
        images = rng.integers(256, size=(count, 3072)) // 2 + 12 * labels[:, None]  # brighter classes can be learned
        content = np.column_stack([labels, images]).astype(np.uint8).tobytes()
        (folder / f"{name}.bin.xz").write_bytes(lzma.compress(content, preset=0))
        sums[name] = _md5(content)
    monkeypatch.setattr(cifar10, "MD5", sums)


def _nci1(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    indicator, kinds, edges, labels, first = [], [], [], [], 1
    for graph in range(80):
        label, nodes = graph % 2, int(rng.integers(3, 9))
        labels.append(label)
        indicator += [graph + 1] * nodes
        kinds += (rng.integers(1, 15, nodes) + 15 * label).tolist()
        for a in range(1, nodes):
            edges += [(first + a, first + a - 1), (first + a - 1, first + a)]
        first += nodes
    tables = {"graph_labels": labels, "graph_indicator": indicator, "node_labels": kinds}
    for name, values in tables.items():
        (folder / f"NCI1_{name}.txt").write_text("\n".join(map(str, values)) + "\n")
    (folder / "NCI1_A.txt").write_text("\n".join(f"{a},{b}" for a, b in edges) + "\n")
    monkeypatch.setattr(nci1, "COUNTS", {name: len(v) for name, v in tables.items()} | {"A": len(edges)})


def _covertype(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    labels = np.arange(350) % 7 + 1
    rows = np.column_stack([rng.integers(100, size=(350, 54)) + 20 * labels[:, None], labels])
    content = "".join(",".join(map(str, row)) + "\n" for row in rows).encode()
    (folder / "covtype.data.gz").write_bytes(gzip.compress(content))
    monkeypatch.setattr(covertype, "CONTENT_MD5", _md5(content))


def _ag_news(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(parents=True)
    words = ["world", "sport", "money", "tech"]

    def rows(count: int, columns: int) -> str:
        texts = (f'"{i % 4 + 1}"' + f',"{words[i % 4]} news {"x" * (i % 5)}"' * columns for i in range(count))
        return "\n".join(texts) + "\n"

    (folder / "train_50k.csv").write_text(rows(80, 1))
    (folder / "test.csv").write_text(rows(40, 2))
    monkeypatch.setattr(ag_news, "MD5", {"test.csv": _md5((folder / "test.csv").read_bytes())})


def _gpt2(folder: Path) -> None:
    """GPT-2's 256 bytes and as many made-up entries as it has, without merges."""
    folder.mkdir(parents=True)
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in printable]
    letters = [chr(b) for b in printable] + [chr(256 + i) for i in range(len(rest))]
    names = [*letters, *(f"word{i}" for i in range(ag_news.VOCABULARY - 257)), "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")

"""Loaders on small files made here (good, truncated, wrong), and on the real ones where they are."""

import gzip
import hashlib
import json
import lzma
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ensgap.errors import UserError
from ensgap.points import TensorPoints, standardize
from ensgap.tasks import ag_news, cifar10, covertype, files, nci1
from tests.made_data import make_all

REAL = Path(os.environ.get("ENSGAP_DATA") or Path(__file__).parents[3] / "shared" / "data")
real_data = pytest.mark.skipif(not (REAL / "NCI1").exists(), reason="the real data sets are not here")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_all(tmp_path, monkeypatch)
    return tmp_path


def no_network(folder: Path) -> None:
    raise OSError("no network")


@pytest.mark.parametrize("ending", ["", ".xz"])
def test_cifar10(root: Path, ending: str) -> None:
    if not ending:
        for path in root.glob("cifar10/cifar-10-batches-bin/*.xz"):
            path.with_suffix("").write_bytes(lzma.decompress(path.read_bytes()))
            path.unlink()
    data: Any = cifar10.load(root)
    assert (data.pool.inputs.shape, data.test.inputs.shape) == ((100, 3, 32, 32), (40, 3, 32, 32))
    assert data.pool.inputs.dtype == torch.uint8
    assert data.pool.labels.bincount().tolist() == [10] * 10


def test_nci1(root: Path) -> None:
    data: Any = nci1.load(root)
    assert (len(data.pool), len(data.test)) == (64, 16)
    batch = data.pool.gather(torch.arange(64).unsqueeze(0))[0]
    x = torch.ones(len(batch.node_labels), 1, dtype=torch.float64)
    dense = torch.stack([batch.propagate(column.unsqueeze(1)).squeeze(1) for column in torch.eye(len(x)).double()])
    torch.testing.assert_close(dense, dense.T)  # symmetric, as its backward pass assumes


def test_covertype(root: Path) -> None:
    data: Any = covertype.load(root)
    assert (len(data.pool), len(data.test)) == (280, 70)
    assert data.pool.inputs.shape[1] == 54
    assert sorted(data.pool.labels.unique().tolist()) == list(range(7))


def test_ag_news_says_that_its_training_texts_are_a_part_and_tokenizes_once(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data: Any = ag_news.load(root)
    assert (len(data.pool), len(data.test)) == (80, 40)
    assert "Only 80 of AG News's 120,000 training texts" in data.notes[0]
    batch = data.pool.gather(torch.tensor([[3, 5], [0, 79]]))
    assert batch.tokens.shape == (2, 2, int(batch.lengths.max()))
    monkeypatch.setattr(ag_news, "_tokenizer", lambda _: pytest.fail("tokenized again"))
    again: Any = ag_news.load(root)
    assert torch.equal(again.pool.tokens, data.pool.tokens)


@pytest.mark.parametrize(
    ("load", "pattern", "words"),
    [
        (cifar10.load, "cifar10/*/data_batch_3.bin.xz", "data_batch_3.bin.xz is damaged"),
        (covertype.load, "covtype/covtype.data.gz", "covtype.data.gz is damaged"),
        (nci1.load, "NCI1/raw/NCI1_A.txt", "NCI1_A.txt is damaged"),
        (ag_news.load, "ag_news/test.csv", "test.csv is damaged"),
        (ag_news.load, "gpt2/vocab.json", "vocab.json is damaged"),
        (ag_news.load, "gpt2/merges.txt", "merges.txt is damaged"),
    ],
)
def test_a_truncated_file_is_named(root: Path, load: Any, pattern: str, words: str) -> None:
    path = next(root.glob(pattern))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(UserError, match=words):
        load(root)


def test_wrong_content_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = root / "covtype" / "covtype.data.gz"
    rows = gzip.decompress(path.read_bytes()).decode().splitlines()
    changed = "\n".join(rows[:-1]).encode()
    path.write_bytes(gzip.compress(changed))
    with pytest.raises(UserError, match="its MD5 is"):
        covertype.load(root)
    narrow = "\n".join(row.split(",", 1)[1] for row in rows).encode()
    monkeypatch.setattr(covertype, "CONTENT_MD5", hashlib.md5(narrow).hexdigest())
    path.write_bytes(gzip.compress(narrow))
    with pytest.raises(UserError, match="54 columns instead of 55"):
        covertype.load(root)
    csv = root / "ag_news" / "train_50k.csv"
    csv.write_text(csv.read_text() + '"9","no such class"\n')
    with pytest.raises(UserError, match="line 81 is not a class from 1 to 4"):
        ag_news.load(root)
    edges = root / "NCI1" / "raw" / "NCI1_A.txt"
    lines = edges.read_text().splitlines()
    edges.write_text("\n".join(["1,9999", *lines[1:]]) + "\n")
    with pytest.raises(UserError, match=r"NCI1_A\.txt is damaged"):
        nci1.load(root)


@pytest.mark.parametrize(
    ("module", "folder"), [(cifar10, "cifar10"), (nci1, "NCI1"), (covertype, "covtype"), (ag_news, "ag_news")]
)
def test_missing_data_says_where_it_belongs_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, folder: str
) -> None:
    def half(target: Path) -> None:
        (target / "half").write_text("…")
        raise OSError("connection lost")

    monkeypatch.setattr(module, "_download", half)
    with pytest.raises(UserError, match=rf"{folder} and could not be downloaded \(connection lost\)"):
        module.load(tmp_path)
    assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")] == []


def test_a_download_happens_once_and_is_moved_into_place_whole(tmp_path: Path) -> None:
    calls = []

    def download(target: Path) -> None:
        calls.append(target)
        (target / "a").write_text("1")
        assert not (tmp_path / "set" / "a").exists()

    for _ in range(2):
        files.fetch_once(tmp_path / "set", lambda f: (f / "a").exists(), download, "A set")
    assert len(calls) == 1
    assert (tmp_path / "set" / "a").read_text() == "1"


def test_where_data_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENSGAP_DATA", "/from/environment")
    assert files.data_root(Path("/given")) == Path("/given")
    assert files.data_root(None) == Path("/from/environment")
    monkeypatch.delenv("ENSGAP_DATA")
    assert files.data_root(None).name == "data"


def test_each_member_is_normalised_by_its_own_training_points() -> None:
    g = torch.Generator().manual_seed(0)
    points = TensorPoints(5 + 3 * torch.randn(60, 4, generator=g), torch.zeros(60, dtype=torch.int64))
    points.inputs[:, 3] = 1.0
    own = torch.stack([torch.arange(0, 40), torch.arange(20, 60)])
    seen = standardize(points, own)(points.gather(own), None)
    torch.testing.assert_close(seen.mean(1)[:, :3], torch.zeros(2, 3), atol=1e-5, rtol=0)
    torch.testing.assert_close(seen.std(1, correction=0)[:, :3], torch.ones(2, 3))
    assert (seen[..., 3] == 0).all()
    images = TensorPoints(torch.randint(256, (60, 3, 32, 32), generator=g, dtype=torch.uint8), points.labels)
    pixels = cifar10.prepare(images, own)(images.gather(own), None)
    torch.testing.assert_close(pixels.mean((1, 3, 4)), torch.zeros(2, 3), atol=1e-4, rtol=0)
    torch.testing.assert_close(pixels.std((1, 3, 4), correction=0), torch.ones(2, 3), atol=1e-4, rtol=0)


def test_crops_and_flips_are_drawn_for_every_image_and_member() -> None:
    image = torch.arange(1, 3 * 32 * 32 + 1).remainder(251).add(1).to(torch.uint8).view(3, 32, 32)
    images = image.expand(2, 200, 3, 32, 32)

    def generators() -> list[torch.Generator]:
        return [torch.Generator().manual_seed(m) for m in range(2)]

    out = cifar10.augment(images, generators())
    assert torch.equal(out, cifar10.augment(images, generators()))
    assert torch.equal(out[1], cifar10.augment(images[1:], generators()[1:])[0])  # whatever its neighbours
    assert not torch.equal(out[0], out[1])
    padded = torch.nn.functional.pad(image, (4, 4, 4, 4))
    crops = [padded[:, r : r + 32, c : c + 32] for r in range(9) for c in range(9)]
    both = {crop.numpy().tobytes() for crop in crops} | {crop.flip(2).numpy().tobytes() for crop in crops}
    seen = {picture.numpy().tobytes() for picture in out[0]}
    assert seen <= both
    assert len(seen) > 100
    flips = sum(p.numpy().tobytes() in {c.flip(2).numpy().tobytes() for c in crops} for p in out[0])
    assert 70 < flips < 130


@real_data
def test_the_real_files() -> None:
    data: Any = nci1.load(REAL)
    assert (len(data.pool), len(data.test)) == (3288, 822)
    assert data.pool.labels.bincount().tolist() == [1642, 1646]
    assert len(data.pool.node_labels) + len(data.test.node_labels) == 122_747
    data = covertype.load(REAL)
    assert (len(data.pool), len(data.test)) == (464_809, 116_203)
    assert np.isclose((data.pool.labels == 1).float().mean().item(), 0.4876, atol=1e-4)


@pytest.mark.slow
@real_data
def test_the_real_larger_files() -> None:
    data: Any = cifar10.load(REAL)
    assert data.pool.labels.bincount().tolist() == [5000] * 10
    assert data.test.labels.bincount().tolist() == [1000] * 10
    data = ag_news.load(REAL)
    assert len(data.test) == 7600
    assert data.test.labels.bincount().tolist() == [1900] * 4
    assert int(data.pool.tokens.max()) < ag_news.VOCABULARY


def test_the_made_vocabulary_is_complete(root: Path) -> None:
    assert len(json.loads((root / "gpt2" / "vocab.json").read_text())) == ag_news.VOCABULARY

"""The libraries' real download code, against a server of the test's own that has small data sets of the right shape."""

import hashlib
import io
import pickle
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from huggingface_hub import constants as hub
from sklearn.datasets import _covtype
from torch_geometric.datasets import TUDataset
from torchvision.datasets import CIFAR10

from ensgap.errors import UserError
from ensgap.tasks import ag_news, cifar10, covertype, nci1
from ensgap.tasks.task import TaskData
from tests.conftest import ROOT
from tests.made_data import make_all

GPT2 = "/openai-community/gpt2/resolve/main/"


@dataclass
class Site:
    """A server's files, the way it spoils some of them, and what it was asked for."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    spoiled: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def answer(self, path: str) -> tuple[int, bytes]:
        """How long the answer is said to be, and what is sent of it before the connection is closed."""
        content = self.files.get(path, b"")
        half = content[: len(content) // 2]
        match self.spoiled.get(path):
            case "broken off":
                return len(content), half
            case "too short":
                return len(half), half
            case "wrong":
                return len(content), content[::-1]
        return len(content), content


@pytest.fixture
def site() -> Iterator[Site]:
    served = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length, body = served.answer(self.path)
            self.begin(length)
            with suppress(ConnectionError):  # torchvision hangs up once it knows the address
                self.wfile.write(body)

        def do_HEAD(self) -> None:
            self.begin(len(served.files.get(self.path, b"")))

        def begin(self, length: int) -> None:
            """The headers, among them those that the Hugging Face hub's client needs."""
            served.asked.append(f"{self.command} {self.path}")
            self.send_response(200 if self.path in served.files else 404)
            self.send_header("Content-Length", str(length))
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("ETag", f'"{hashlib.sha1(self.path.encode()).hexdigest()}"')
            self.send_header("X-Repo-Commit", "0" * 40)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served.address = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield served
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def published(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All data sets on the server, and the libraries' addresses, checksums and caches turned to it and to here."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    made = tmp_path / "made"
    make_all(made, monkeypatch)
    _publish_ag_news(site, made, monkeypatch)
    _publish_cifar10(site, made / "cifar10", monkeypatch)
    _publish_nci1(site, made / "NCI1" / "raw", monkeypatch)
    _publish_covertype(site, made / "covtype" / "covtype.data.gz", monkeypatch)


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def _publish_ag_news(site: Site, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = {"train.csv": "train_50k.csv", "test.csv": "test.csv"}
    contents = {name: (made / "ag_news" / source).read_bytes() for name, source in sources.items()}
    site.files |= {f"/ag_news/{name}": content for name, content in contents.items()}
    monkeypatch.setattr(ag_news, "SOURCE", f"{site.address}/ag_news/")
    monkeypatch.setattr(ag_news, "MD5", {name: md5(content) for name, content in contents.items()})
    site.files |= {GPT2 + path.name: path.read_bytes() for path in (made / "gpt2").iterdir()}
    monkeypatch.setattr(hub, "ENDPOINT", site.address)
    monkeypatch.setattr(hub, "HUGGINGFACE_CO_URL_TEMPLATE", site.address + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(hub, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "HF_HUB_CACHE", str(made.parent / "hub"))


def _publish_cifar10(site: Site, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = {"batches.meta": pickle.dumps({"label_names": [str(label) for label in range(10)]})}
    for name in cifar10.MD5:
        images, labels = cifar10.read_binary(made, name)
        contents[name] = pickle.dumps({"data": images.reshape(len(images), -1), "labels": labels.tolist()})
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in contents.items():
            entry = tarfile.TarInfo(f"{CIFAR10.base_folder}/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    site.files["/cifar.tar.gz"] = packed.getvalue()
    monkeypatch.setattr(CIFAR10, "url", f"{site.address}/cifar.tar.gz")
    monkeypatch.setattr(CIFAR10, "tgz_md5", md5(packed.getvalue()))
    for files in ("train_list", "test_list"):
        monkeypatch.setattr(CIFAR10, files, [[name, md5(contents[name])] for name, _ in getattr(CIFAR10, files)])
    monkeypatch.setattr(CIFAR10, "meta", CIFAR10.meta | {"md5": md5(contents["batches.meta"])})


def _publish_nci1(site: Site, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.mkdir("NCI1")
        for path in made.iterdir():
            archive.write(path, f"NCI1/{path.name}")
    site.files["/NCI1.zip"] = packed.getvalue()
    monkeypatch.setattr(TUDataset, "url", site.address)
    monkeypatch.setenv("PYG_HOME", str(made.parents[2] / "pyg"))


def _publish_covertype(site: Site, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site.files["/covtype"] = made.read_bytes()
    there = {"url": f"{site.address}/covtype", "checksum": hashlib.sha256(made.read_bytes()).hexdigest()}
    monkeypatch.setattr(_covtype, "ARCHIVE", _covtype.ARCHIVE._replace(**there))


def left(folder: Path) -> set[Path]:
    """All files and empty folders, but for locks."""
    return {p for p in folder.rglob("*") if p.suffix != ".lock" and (p.is_file() or not any(p.iterdir()))}


Capture = pytest.CaptureFixture[str]
Load = Callable[[Path], TaskData]
SIZES: Any = {ag_news.load: (80, 40), cifar10.load: (100, 40), nci1.load: (64, 16), covertype.load: (280, 70)}
TEXTS = ["ag_news/t*.csv", "gpt2/vocab.json", "gpt2/merges.txt", "prepared/ag_news-*[0-9a-f].npz"]


def check_sizes(load: Load, folder: Path) -> None:
    data = load(folder)
    assert (len(data.pool), len(data.test)) == SIZES[load]


@pytest.mark.parametrize(
    ("load", "names", "bar", "kept"),
    [
        (ag_news.load, ["AG News", "GPT-2's tokenizer"], True, TEXTS),
        (cifar10.load, ["CIFAR-10"], True, ["cifar10/cifar-10-batches-py/*"]),
        (nci1.load, ["NCI1"], False, ["NCI1/raw/NCI1_*.txt"]),
        (covertype.load, ["Covertype"], False, ["covtype/covtype.data.gz"]),
    ],
)
def test_data_is_downloaded_once(
    site: Site, tmp_path: Path, capsys: Capture, load: Load, names: list[str], bar: bool, kept: list[str]
) -> None:
    data = tmp_path / "data"
    check_sizes(load, data)
    printed = capsys.readouterr()
    assert [line.split(" into ")[0] for line in printed.out.splitlines()] == [f"Downloading {name}" for name in names]
    assert ("100%" in printed.err) == bar
    assert left(data) == {path for pattern in kept for path in data.glob(pattern)}
    assert site.asked
    site.asked.clear()
    check_sizes(load, data)
    assert site.asked == []
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("load", "name", "path", "how"),
    [
        (ag_news.load, "AG News", "/ag_news/train.csv", "broken off"),
        (ag_news.load, "AG News", "/ag_news/test.csv", "wrong"),
        (ag_news.load, "GPT-2's tokenizer", GPT2 + "merges.txt", "too short"),
        (cifar10.load, "CIFAR-10", "/cifar.tar.gz", "broken off"),
        (cifar10.load, "CIFAR-10", "/cifar.tar.gz", "wrong"),
        (nci1.load, "NCI1", "/NCI1.zip", "broken off"),
        (nci1.load, "NCI1", "/NCI1.zip", "wrong"),
        (covertype.load, "Covertype", "/covtype", "broken off"),
        (covertype.load, "Covertype", "/covtype", "wrong"),
    ],
)
def test_a_spoiled_download_is_one_sentence_and_leaves_nothing(
    site: Site, tmp_path: Path, load: Load, name: str, path: str, how: str
) -> None:
    data = tmp_path / "data"
    site.spoiled[path] = how
    with pytest.raises(UserError, match=rf"^{name} is not in \S+ and could not be downloaded \([^\n]+[^.]\); put.+\.$"):
        load(data)
    assert left(data) == (set(data.glob("ag_news/*")) if path.startswith(GPT2) else set())
    site.spoiled.clear()
    check_sizes(load, data)


PROCESS = """
import sys
from pathlib import Path
from sklearn.datasets import _covtype
from ensgap.tasks import covertype

data, url, checksum, covertype.CONTENT_MD5 = sys.argv[1:]
_covtype.ARCHIVE = _covtype.ARCHIVE._replace(url=url, checksum=checksum)
print("ready", flush=True)
input()
print(len(covertype.load(Path(data)).pool))
"""


def test_of_two_processes_that_start_at_once_one_downloads(site: Site, tmp_path: Path) -> None:
    archive = _covtype.ARCHIVE
    command = [sys.executable, "-c", PROCESS, str(tmp_path), archive.url, archive.checksum, covertype.CONTENT_MD5]
    pipe = subprocess.PIPE
    both = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) for _ in range(2)]
    assert [process.stdout.readline() for process in both if process.stdout] == ["ready\n"] * 2
    for process in both:
        print(file=process.stdin, flush=True)
    printed = [process.communicate(timeout=300)[0].splitlines() for process in both]
    assert [lines[-1] for lines in printed] == ["280", "280"]
    assert sorted(len(lines) for lines in printed) == [1, 2]
    assert site.asked == ["GET /covtype"]

"""What several test modules share: small real trials, and studies run for real as a user runs them."""

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run beside each other; torch reads it when it is imported

from ensgap.holdout import Holdout
from ensgap.spec import TrialSpec
from ensgap.train import TrainConfig

ROOT = Path(__file__).parent.parent
STUDY = ("--members", "3", "--replicates", "2", "--test-replicates", "4", "--epochs", "30")
GRID = ("--grid", "0", "1e-4", "3e-4", "1e-3", "3e-3", "1e-2", "1e9")
"""The last value diverges."""


def pytest_configure(config: pytest.Config) -> None:
    """Declare what only some runs leave out."""
    config.addinivalue_line("markers", "long: slow, and more than CI has time for; make test-long runs these")


def start_study(out: Path, *flags: str, study: str = "weight_decay") -> subprocess.Popen[str]:
    """`python studies/<study>.py` in a process of its own."""
    command = [sys.executable, str(ROOT / "studies" / f"{study}.py"), "--out", str(out), *flags]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd=out.parent
    )


def run_study(out: Path, *flags: str, study: str = "weight_decay") -> tuple[int, str]:
    """Its exit status and all it printed."""
    process = start_study(out, *flags, study=study)
    output, _ = process.communicate(timeout=300)
    return process.returncode, output


@pytest.fixture(scope="session")
def finished_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small but real study, run once through the command line."""
    out = tmp_path_factory.mktemp("study") / "grid"
    status, output = run_study(out, *STUDY, *GRID)
    assert status == 0, output
    return out


@pytest.fixture
def spec() -> TrialSpec:
    """A search trial of the digits that takes a moment."""
    return TrialSpec(
        task="digits",
        phase="search",
        setting={"weight_decay": 1e-3},
        members=2,
        replicates=(0, 1),
        seed=0,
        train=TrainConfig(epochs=4),
        holdout=Holdout(order=2, fraction=0.3),
    )


def lines(path: Path) -> Sequence[str]:
    """A text file's lines."""
    return path.read_text().splitlines()


@contextmanager
def s3_server() -> Iterator[str]:
    """A real S3 server on loopback, with one bucket; its address, which carries a password."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        request = urllib.request.Request(f"http://{host}:{port}/studies", method="PUT", headers={"Host": host})
        urllib.request.urlopen(request, timeout=10).close()
        yield f"s3://key:hush@studies?scheme=http&endpoint_override={host}:{port}&region=us-east-1"
    finally:
        server.stop()

"""Optuna's storages for real: a PostgreSQL server of our own, extended studies, and Optuna's dashboard."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from ensgap.errors import UserError
from ensgap.plans.weight_decay import WeightDecayConfig
from ensgap.search.optuna_storage import open_storage
from ensgap.search.weight_decay import weight_decay_study

PASSWORD = "s3cret/word"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def postgresql() -> Iterator[str]:
    """The address of a database on a server that runs as a user of its own, with its password."""
    if shutil.which("initdb") is None or shutil.which("postgres") is None:
        pytest.skip("PostgreSQL's initdb and postgres are not in PATH")
    pytest.importorskip("psycopg")
    user = "postgres" if os.geteuid() == 0 else None  # it refuses to run as root
    base, port = Path(tempfile.mkdtemp(prefix="pg")), free_port()
    (base / "password").write_text(PASSWORD)
    if user is not None:
        try:
            shutil.chown(base, user)
        except LookupError:
            pytest.skip("there is no user that PostgreSQL may run as")
    data = str(base / "data")
    quiet = {"user": user, "cwd": base, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    make = ["initdb", "-D", data, "-U", "me", "-A", "scram-sha-256", f"--pwfile={base / 'password'}", "--no-sync"]
    subprocess.run(make, check=True, timeout=60, **quiet)  # type: ignore[call-overload]
    run = ["postgres", "-D", data, "-p", str(port), "-c", "listen_addresses=127.0.0.1", "-k", str(base), "-F"]
    server = subprocess.Popen(run, **quiet)  # type: ignore[call-overload]
    try:
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"postgresql://me:{PASSWORD.replace('/', '%2F')}@127.0.0.1:{port}/postgres"
    finally:
        server.send_signal(signal.SIGINT)  # which does not wait for connections to be closed
        server.wait(timeout=30)
        shutil.rmtree(base, ignore_errors=True)


def test_a_wrong_password_is_refused_in_one_sentence(postgresql: str) -> None:
    with pytest.raises(UserError, match="password authentication failed") as error:
        open_storage(postgresql.replace("s3cret", "wr0ng"))
    assert "wr0ng" not in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize("storage", [pytest.param("journal", marks=pytest.mark.long), "postgresql"])
def test_a_finished_study_can_be_extended(storage: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    address = request.getfixturevalue("postgresql") if storage == "postgresql" else None
    config = WeightDecayConfig(
        smoke=True, search="optuna", out=tmp_path / "study", optuna_storage=address, num_samples=4
    )
    first = weight_decay_study(config)
    more = weight_decay_study(replace(config, num_samples=6, resume=True))
    assert (len(first.trials), len(more.trials)) == (4, 6)
    before = [trial.setting for trial in first.trials]
    assert all(setting in [trial.setting for trial in more.trials] for setting in before)
    where = address or tmp_path / "study" / "optuna.journal"
    name = "weight_decay-digits"
    if address is not None:
        name = json.loads((tmp_path / "study" / "optuna.json").read_text())["study"]
    trials = optuna.load_study(study_name=name, storage=open_storage(where)).get_trials()
    assert [t.state for t in trials] == [TrialState.COMPLETE] * 5  # all but the weight decay of 0
    secret = PASSWORD.partition("/")[0].encode()
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and secret in file.read_bytes()]


@pytest.mark.parametrize("storage", ["journal", "sqlite"])
def test_optunas_dashboard_opens_the_study(storage: str, tmp_path: Path) -> None:
    where = tmp_path / "optuna.journal" if storage == "journal" else f"sqlite:///{tmp_path}/optuna.db"
    study = optuna.create_study(storage=open_storage(where), study_name="mine", directions=["minimize"] * 2)
    study.add_trial(optuna.trial.create_trial(values=[1.0, 2.0]))
    port = free_port()
    program = Path(sys.executable).parent / "optuna-dashboard"
    command = [str(program), str(where), "--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/studies", timeout=5) as answer:
                    studies = json.load(answer)["study_summaries"]
                break
            except OSError:
                assert server.poll() is None
                time.sleep(0.1)
        assert [(s["study_name"], len(s["directions"])) for s in studies] == [("mine", 2)]
    finally:
        server.terminate()
        server.wait(timeout=30)

"""Nothing is lost: nodes, drivers, workers, memory, checkpoints and disks fail for real."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ensgap.predictions import Predictions
from tests.conftest import ROOT, lines, run_study, start_study
from tests.ray_nodes import RayNodes, descendants, kill_tree, namespaces_allowed

pytestmark = pytest.mark.slow
STUDY = ("--members", "3", "--replicates", "2", "--test-replicates", "2", "--epochs", "100", "--checkpoint-every", "1")
SHORT = (*STUDY, "--epochs", "4")
GRID = ("--grid", "0", "1e-3", "1e-2", "1e-1")


def ended(out: Path, phase: str = "search") -> list[Path]:
    return sorted(out.glob(f"trials/{phase}-*/trial.json"))


def wait_until(condition: object, process: subprocess.Popen[str]) -> None:
    assert callable(condition)
    deadline = time.monotonic() + 150
    while not condition() and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    assert condition()


def wait_for_silence(out: Path) -> None:
    """Until nobody writes any more: workers outlive their driver for a moment."""
    deadline = time.monotonic() + 60
    seen: dict[Path, int] = {}
    while (now := {path: path.stat().st_mtime_ns for path in out.glob("trials/*/*") if path.exists()}) != seen:
        assert time.monotonic() < deadline
        seen = now
        time.sleep(3)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    status, output = run_study(out, *STUDY, *GRID)
    assert status == 0, output
    return out


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayNodes]:
    """In network namespaces with addresses of their own, where that is allowed."""
    with RayNodes(namespaces=namespaces_allowed()) as nodes:
        for _ in range(3):
            nodes.add(cpus=1)
        yield nodes


def start(cluster: RayNodes, out: Path, *flags: str) -> subprocess.Popen[str]:
    script = str(ROOT / "studies/weight_decay.py")
    command = [*cluster.nodes[0].prefix, sys.executable, script, "--out", str(out), "--cluster", cluster.address]
    return subprocess.Popen(
        [*command, *STUDY, *GRID, *flags],
        env=cluster.environment | {"RAY_gcs_rpc_server_reconnect_timeout_s": "5"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_lost_node_and_a_killed_driver_change_nothing(cluster: RayNodes, undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = start(cluster, out)
    wait_until(lambda: len([*out.glob("trials/search-*/checkpoint.pt")]) == 3, process)  # one on every node
    cluster.nodes[2].kill()
    wait_until(lambda: len(ended(out)) >= 2, process)
    kill_tree(process.pid)
    process.communicate()
    wait_for_silence(out)
    damaged = [*out.glob("trials/search-*/checkpoint.pt")][:1]  # none if one trial ended and the next had not begun
    for checkpoint in damaged:
        content = checkpoint.read_bytes()
        checkpoint.write_bytes(content[: len(content) // 2] + bytes(100) + content[len(content) // 2 + 100 :])
    kept = {path: path.stat().st_mtime_ns for path in ended(out)}
    assert len(kept) >= 2
    assert not (out / "summary.json").exists()
    process = start(cluster, out, "--resume")
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    assert "2 nodes, 2 CPUs" in output
    for checkpoint in damaged:
        assert f"The checkpoint {checkpoint} is damaged" in output
    for name in ("trials.csv", "tables/test.csv", "tables/gap.csv"):
        assert lines(out / name) == lines(undisturbed / name)
    assert all(path.stat().st_mtime_ns == when for path, when in kept.items())
    assert not [*out.glob("trials/*/checkpoint.pt")]
    for file in out.glob("ray/*/*/result.json"):  # at most the epochs since the last checkpoint were trained again
        epochs = [json.loads(line)["epoch"] for line in lines(file)]
        assert epochs == sorted(set(epochs))


@pytest.mark.long
def test_a_lost_head_ends_the_study_which_resumes_anywhere(
    cluster: RayNodes, undisturbed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = start(cluster, out)
    wait_until(lambda: len(ended(out)) >= 1, process)
    cluster.nodes[0].kill()
    output, _ = process.communicate(timeout=120)
    assert process.returncode != 0, output
    kept = {path: path.stat().st_mtime_ns for path in ended(out)}
    status, output = run_study(out, *STUDY, *GRID, "--resume")  # here, without the cluster
    assert status == 0, output
    for name in ("trials.csv", "tables/test.csv"):
        assert lines(out / name) == lines(undisturbed / name)
    assert all(path.stat().st_mtime_ns == when for path, when in kept.items())


def workers(pid: int) -> list[int]:
    """The processes below one in which a trial is being trained."""
    others = (b"IDLE", b"Agent", b"Dashboard", b"Head")
    found = []
    for one in descendants(pid)[1:]:
        with suppress(OSError):
            name = (Path("/proc") / str(one) / "cmdline").read_bytes()
            if name.startswith(b"ray::") and not any(other in name for other in others):
                found.append(one)
    assert len(found) == 1, found
    return found


@pytest.mark.long
def test_a_trial_that_fails_for_good_is_recorded_and_a_resumed_study_tries_it_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    flags = ("--members", "3", "--replicates", "2", "--test-replicates", "2", "--epochs", "1000", *GRID)
    process = start_study(out, *flags, "--retries", "0", "--concurrency", "1")
    wait_until(lambda: any(lines(file) for file in out.glob("ray/search/*/result.json")), process)
    for worker in workers(process.pid):
        os.kill(worker, signal.SIGKILL)  # as the kernel does when memory runs out
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    assert "Traceback" not in output
    assert "failed: its worker died, or its node was lost" in output
    summary = json.loads((out / "summary.json").read_text())
    assert len(summary["failed"]) == 1
    assert summary["failed"][0] not in (summary["h_ind"], summary["h_ens"])
    assert "Failed (out of memory, or their workers died)" in (out / "report.md").read_text()
    assert sum("failed" in line for line in lines(out / "trials.csv")) == 1
    kept = {path: path.stat().st_mtime_ns for path in ended(out)}
    status, output = run_study(out, *flags, "--resume")
    assert status == 0, output
    assert sum(path.stat().st_mtime_ns != when for path, when in kept.items()) == 1
    assert sum("finished" in line for line in lines(out / "trials.csv")) == 4


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="needs a disk of its own, which only root can mount")
def test_a_full_disk_and_one_that_cannot_be_written(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "none", str(disk)], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        status, output = run_study(disk / "out", *SHORT, *GRID)
        assert status == 2, output
        assert "No space left on device" in output
        assert "continue with --resume" in output
        assert "Traceback" not in output
        assert json.loads((disk / "out" / "study.json").read_text())["config"]["study"] == "weight_decay"
        for record in ended(disk / "out"):
            assert json.loads(record.read_text())["status"] == "finished"
            Predictions.load(record.parent / "predictions.npz")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        status, output = run_study(disk / "out", *SHORT, *GRID, "--resume")
        assert status == 2, output
        assert "Read-only file system" in output
        assert len(output.strip().splitlines()) == 1
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)

"""Studies on a real cluster of several raylets: who may join, what is refused, and where files go."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ensgap.storage import open_place
from ensgap.versions import versions
from tests.conftest import ROOT, lines, s3_server
from tests.ray_nodes import RayNodes

pytestmark = pytest.mark.slow
SMOKE = ("--smoke", "--task", "digits")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayNodes]:
    with RayNodes() as nodes:
        nodes.add(cpus=1)
        nodes.add(cpus=1)
        yield nodes


def study(cluster: RayNodes, out: Path, *flags: str, **environment: str) -> tuple[int, str]:
    """`python studies/weight_decay.py --cluster …` as a user runs it."""
    command = [sys.executable, str(ROOT / "studies/weight_decay.py"), *SMOKE, "--out", str(out), *flags]
    done = subprocess.run(
        command, env=cluster.environment | environment, capture_output=True, text=True, timeout=240, cwd=out.parent
    )
    return done.returncode, done.stdout + done.stderr


def refused(status_and_output: tuple[int, str]) -> str:
    """The one sentence with which a study was refused, at most after it said what it joined."""
    status, output = status_and_output
    assert status == 2, output
    told = [line for line in output.strip().splitlines() if not line.startswith("Ray cluster at")]
    assert len(told) == 1, output
    return told[0]


def test_a_study_in_a_bucket_on_two_nodes_equals_a_local_one(cluster: RayNodes, tmp_path: Path) -> None:
    with s3_server() as bucket:
        status, output = study(cluster, tmp_path / "far", "--cluster", cluster.address, "--storage", bucket)
        assert status == 0, output
        assert f"Ray cluster at {cluster.address}: 2 nodes, 2 CPUs, 0 GPUs, 2 trials at once; dashboard http" in output
        place = open_place(bucket) / "far"
        assert len([*(place / "trials").glob("*/predictions.npz")]) >= 4
        for name in ("study.json", "summary.json", "report.html", "trials.csv", "figures/nll.png"):
            assert b"hush" not in (place / name).read_bytes()
        assert not (tmp_path / "far" / "trials").exists()
        rebuilt = tmp_path / "rebuilt"
        command = [
            sys.executable,
            "-m",
            "ensgap.report",
            bucket.replace("studies?", "studies/far?"),
            "--out",
            str(rebuilt),
        ]
        subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    status, output = study(cluster, tmp_path / "near")
    assert status == 0, output
    for name in ("trials.csv", "tables/test.csv"):
        assert lines(tmp_path / "far" / name) == lines(tmp_path / "near" / name) == lines(rebuilt / name)
    written = [path for path in (tmp_path / "far").rglob("*") if path.is_file()]
    assert len(written) > 10
    assert not [path for path in written if b"hush" in path.read_bytes()]


@pytest.mark.long
def test_a_client_outside_the_cluster(cluster: RayNodes, tmp_path: Path) -> None:
    address = f"ray://{cluster.host}:{cluster.client_port}"
    status, output = study(cluster, tmp_path / "client", "--cluster", address)
    assert status == 0, output
    assert "2 nodes, 2 CPUs" in output
    assert json.loads((tmp_path / "client" / "summary.json").read_text())["settings_tried"] == 3


def test_a_wrong_token(cluster: RayNodes, tmp_path: Path) -> None:
    output = refused(study(cluster, tmp_path / "x", "--cluster", cluster.address, RAY_AUTH_TOKEN="f" * 64))
    assert "does not accept our token" in output
    assert not (tmp_path / "x").exists()


def test_no_cluster(cluster: RayNodes, tmp_path: Path) -> None:
    output = refused(study(cluster, tmp_path / "x", "--cluster", f"{cluster.host}:1"))
    assert "No Ray cluster answers" in output
    assert not (tmp_path / "x").exists()


def test_a_node_with_another_torch(cluster: RayNodes, tmp_path: Path) -> None:
    other = tmp_path / "torch-0.1.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 0.1\n")
    node = cluster.add(cpus=1, environment={"PYTHONPATH": f"{tmp_path}:{ROOT}"})
    try:
        output = refused(study(cluster, tmp_path / "x", "--cluster", cluster.address))
    finally:
        node.kill()
    assert f"has torch 0.1, not {versions()['torch'].split('+')[0]}" in output
    assert not (tmp_path / "x").exists()


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs mount namespaces")
def test_a_node_that_does_not_see_the_storage(cluster: RayNodes, tmp_path: Path) -> None:
    hide = f'mount -t tmpfs none {tmp_path} && exec "$@"'
    node = cluster.add(cpus=1, prefix=("unshare", "--mount", "sh", "-c", hide, "sh"))
    try:
        output = refused(study(cluster, tmp_path / "x", "--cluster", cluster.address))
    finally:
        node.kill()
    assert "does not share the storage" in output
    assert "it finds nothing there" in output
    assert not (tmp_path / "x").exists()


WHERE_DATA_IS = """
import sys
from ensgap.search.cluster import ClusterRay
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from ensgap.search.nodes import alive_nodes
from ensgap.tasks import get_task

def region(pool):
    place = pool.inputs.data_ptr()
    for line in open("/proc/self/maps"):
        start, end = (int(part, 16) for part in line.split()[0].split("-"))
        if start <= place < end:
            return line.split(maxsplit=5)[-1].strip()

with ClusterRay(sys.argv[1]):
    pool = ray.put(get_task("digits").load(None).pool)
    print("joined", flush=True)
    input()
    for node in alive_nodes():
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        print("in", ray.get(ray.remote(region).options(num_cpus=0, scheduling_strategy=there).remote(pool)))
"""


def test_data_is_shared_on_every_node_and_on_one_that_joins_late(cluster: RayNodes) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WHERE_DATA_IS, cluster.address],
        env=cluster.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    while "joined" not in process.stdout.readline():
        assert process.poll() is None
    node = cluster.add(cpus=1)
    try:
        output, _ = process.communicate("go\n", timeout=120)
    finally:
        node.kill()
    places = [line for line in output.splitlines() if line.startswith("in ")]
    assert len(places) == 3, output
    assert all("plasma" in place for place in places), output  # read in the node's object store, not copied

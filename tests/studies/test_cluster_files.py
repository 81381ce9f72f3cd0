"""The ready-made ways up: valid for the installed Ray, nobody let in, and commands that our own scripts understand."""

import contextlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray import __version__ as ray_version
from ray.autoscaler._private.util import prepare_config, validate_config

from ensgap.cli import parse
from ensgap.config import StudyConfig
from ensgap.plans.weight_decay import WeightDecayConfig
from tests.conftest import ROOT

CLUSTER = ROOT / "studies" / "cluster"
LAUNCHER = ("on-premise.yaml", "aws.yaml")


def load(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((CLUSTER / name).read_text()))


def parsed(command: str) -> StudyConfig:
    """A study's command line, read as the script reads it; the script must be there."""
    words = shlex.split(command)
    script = next(i for i, word in enumerate(words) if word.endswith(".py"))
    path = ROOT / "studies" / Path(words[script]).name
    assert path.exists()
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    return parse(WeightDecayConfig, words[script + 1 :])


def command_in(name: str) -> str:
    """The study that a file's comment runs with `ray exec`."""
    text = re.sub(r"\\\n#\s*", "", (CLUSTER / name).read_text())
    found = re.search(r"ray exec \S+ '(.*?)'", text)
    assert found is not None
    return found[1].split(" && ")[1]


@pytest.mark.parametrize("name", LAUNCHER)
def test_launcher_files_are_valid_for_the_installed_ray(name: str) -> None:
    config = prepare_config(load(name))
    validate_config(config)
    with pytest.raises(Exception, match="Additional properties"):
        validate_config(config | {"clustername": "x"})


@pytest.mark.parametrize("name", LAUNCHER)
def test_launcher_files_let_nobody_in(name: str) -> None:
    config = load(name)
    assert config["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"
    starts = [c for kind in ("head", "worker") for c in config[f"{kind}_start_ray_commands"] if "ray start" in c]
    assert len(starts) == 2
    assert all(c.startswith("RAY_AUTH_MODE=token ") for c in starts)
    assert "--dashboard-host=127.0.0.1" in starts[0]
    assert "0.0.0.0" not in json.dumps(config)


def test_cloud_nodes_are_in_a_group_of_our_own_because_rays_opens_ssh_to_the_world() -> None:
    types = load("aws.yaml")["available_node_types"]
    assert all(node["node_config"]["SecurityGroupIds"] for node in types.values())
    assert types["gpu-spot"]["node_config"]["InstanceMarketOptions"] == {"MarketType": "spot"}
    assert types["head"]["resources"] == {"CPU": 0}


@pytest.mark.parametrize("name", LAUNCHER)
def test_the_commands_in_launcher_files_are_understood(name: str) -> None:
    config: Any = parsed(command_in(name))
    assert config.cluster == "auto"
    assert config.storage is not None


def test_rayjob_has_the_fields_that_kuberay_reads() -> None:
    job, policy = yaml.safe_load_all((CLUSTER / "kuberay.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token"}
    assert cluster["rayVersion"] == ray_version
    assert cluster["headGroupSpec"]["serviceType"] == "ClusterIP"
    pods = [cluster["headGroupSpec"]["template"], *(group["template"] for group in cluster["workerGroupSpecs"])]
    for pod in pods:
        assert pod["metadata"]["labels"] == policy["spec"]["podSelector"]["matchLabels"]
        assert [v["name"] for v in pod["spec"]["volumes"]] == ["shared"]
        for container in pod["spec"]["containers"]:
            assert container["image"] and container["resources"]["limits"]
            assert "hostPort" not in json.dumps(container)
    assert policy["kind"] == "NetworkPolicy"
    assert all("ipBlock" not in way for rule in policy["spec"]["ingress"] for way in rule["from"])
    config: Any = parsed(job["spec"]["entrypoint"])
    assert (config.cluster, config.resume, config.gpus_per_trial) == ("auto", True, 1)


def test_slurm_script_is_bash_and_its_example_is_understood() -> None:
    script = CLUSTER / "slurm.sh"
    subprocess.run(["bash", "-n", str(script)], check=True)
    found = re.search(r"studies/cluster/slurm.sh (studies/.*)", script.read_text())
    assert found is not None
    config: Any = parsed(f"python {found[1]} --cluster 10.0.0.1:6379 --resume")
    assert config.cluster == "10.0.0.1:6379"


STUBS = {
    "scontrol": 'printf "one\\ntwo\\n"',
    "srun": 'while [[ $1 == --* ]]; do shift; done; exec "$@"',  # both "nodes" are this machine
}
STUDY = """
import os, sys, time, ray
address = sys.argv[sys.argv.index("--cluster") + 1]
ray.init(address=address, log_to_driver=False)
deadline = time.monotonic() + 60
while len([n for n in ray.nodes() if n["Alive"]]) < 2 and time.monotonic() < deadline:
    time.sleep(0.2)
print("nodes", len([n for n in ray.nodes() if n["Alive"]]), "token", os.environ["RAY_AUTH_MODE"], sys.argv[-1])
sys.exit(3)
"""


def processes_with(variable: str) -> list[str]:
    found = []
    for file in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it ended meanwhile, or is not ours
            found += [str(file)] if variable.encode() in file.read_bytes().split(b"\0") else []
    return found


@pytest.mark.slow
def test_slurm_script_starts_a_cluster_runs_the_study_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """With stand-ins for SLURM's own commands; Ray, its token and its nodes are real."""
    for name, text in STUBS.items():
        (tmp_path / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "study.py").write_text(STUDY)
    tokens = tmp_path / "tokens"
    tokens.mkdir()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")} | {
        "PATH": f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_JOB_NODELIST": "one,two",
        "ENSGAP_TOKENS": str(tokens),
    }
    temporary = f"/tmp/ensgap-{os.getpid()}"
    done = subprocess.run(
        ["bash", str(CLUSTER / "slurm.sh"), "study.py", "--task", "digits"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    logs = "".join(file.read_text() for file in tmp_path.glob("ray-*.log"))
    assert "nodes 2 token token --resume" in done.stdout, done.stdout + done.stderr + logs
    assert done.returncode == 3
    assert not list(tokens.iterdir())
    deadline = time.monotonic() + 60
    while processes_with(f"RAY_TMPDIR={temporary}") and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not processes_with(f"RAY_TMPDIR={temporary}")
    shutil.rmtree(temporary)

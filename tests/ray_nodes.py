"""A real Ray cluster for tests: raylets in processes of their own and, on request, in networks of their own."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests.conftest import ROOT

QUICK_TO_NOTICE = {
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
}


@dataclass
class Node:
    """One `ray start --block`."""

    process: subprocess.Popen[bytes]
    prefix: tuple[str, ...]

    def kill(self) -> None:
        """SIGKILL for all its processes at once, as when a machine is lost."""
        kill_tree(self.process.pid)
        self.process.wait(timeout=20)


class RayNodes:
    """A head, and nodes that join it; with `namespaces` each in a network of its own, on one bridge."""

    def __init__(self, namespaces: bool = False) -> None:
        self.temp = Path(tempfile.mkdtemp(prefix="eg-"))  # short, for the sake of socket names
        self.token = secrets.token_hex(32)
        self.net = f"eg{secrets.token_hex(2)}" if namespaces else None
        self.nodes: list[Node] = []
        self.host = "10.214.77.1" if namespaces else "127.0.0.1"
        self.port, self.client_port = free_ports(2)
        if self.net:
            _run("ip", "link", "add", self.net, "type", "bridge")
            _run("ip", "link", "set", self.net, "up")

    @property
    def address(self) -> str:
        """For --cluster."""
        return f"{self.host}:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """Of a process that may join."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token, "RAY_USAGE_STATS_ENABLED": "0"}
        return kept | own | {"PYTHONPATH": str(ROOT), "HOME": str(self.temp)}

    def add(self, cpus: int, prefix: Sequence[str] = (), environment: Mapping[str, str] = {}) -> Node:
        """A node, the first one the head; `prefix` goes before the command."""
        number = len(self.nodes) + 1
        ip = self.host
        if self.net:
            ip = f"10.214.77.{number}"
            prefix = (*self._namespace(number, ip), *prefix)
        agent, metrics, dashboard, *_ = free_ports(3)
        command = [str(Path(sys.executable).parent / "ray"), "start", "--block", "--num-cpus", str(cpus)]
        command += ["--node-ip-address", ip, "--object-store-memory", str(100 << 20)]
        command += ["--dashboard-agent-listen-port", str(agent), "--metrics-export-port", str(metrics)]
        if number == 1:
            command += ["--head", "--port", str(self.port), "--ray-client-server-port", str(self.client_port)]
            command += ["--dashboard-port", str(dashboard), "--temp-dir", str(self.temp / "ray")]
        else:
            command += ["--address", self.address]
            command += ["--temp-dir", str(self.temp / f"ray{number}")] if self.net else []
        with (self.temp / f"node{number}.log").open("wb") as log:
            process = subprocess.Popen(
                [*prefix, *command],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment | QUICK_TO_NOTICE | dict(environment),
            )
        node = Node(process, tuple(prefix))
        self.nodes.append(node)
        self._wait_for(number, process)
        return node

    def _namespace(self, number: int, ip: str) -> tuple[str, ...]:
        name, inside, outside = (f"{self.net}{kind}{number}" for kind in "nio")
        _run("ip", "netns", "add", name)
        _run("ip", "link", "add", outside, "type", "veth", "peer", "name", inside, "netns", name)
        _run("ip", "link", "set", outside, "master", str(self.net), "up")
        _run("ip", "-n", name, "addr", "add", f"{ip}/24", "dev", inside)
        _run("ip", "-n", name, "link", "set", inside, "up")
        _run("ip", "-n", name, "link", "set", "lo", "up")
        _run("ip", "-n", name, "route", "add", "default", "dev", inside)
        return ("ip", "netns", "exec", name)

    def _wait_for(self, number: int, process: subprocess.Popen[bytes]) -> None:
        log = self.temp / f"node{number}.log"
        deadline = time.monotonic() + 120
        while "--block" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)

    def __enter__(self) -> "RayNodes":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, node in reversed([*enumerate(self.nodes, start=1)]):
            if node.process.poll() is None:
                node.kill()
            if self.net:
                _run("ip", "netns", "del", f"{self.net}n{number}")
        if self.net:
            _run("ip", "link", "del", self.net)
        shutil.rmtree(self.temp, ignore_errors=True)


def namespaces_allowed() -> bool:
    """Whether network namespaces can be made here."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"eg{secrets.token_hex(4)}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
        return False
    worked = not subprocess.run(["ip", "netns", "exec", name, "true"], capture_output=True).returncode
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return worked


def descendants(pid: int) -> list[int]:
    """A process and all that descend from it."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found


def kill_tree(pid: int) -> None:
    """SIGKILL for a process and all that descend from it."""
    for one in descendants(pid):
        with suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


def free_ports(number: int) -> list[int]:
    """Ports that nobody listens on."""
    sockets = [socket.socket() for _ in range(number)]
    for one in sockets:
        one.bind(("", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)

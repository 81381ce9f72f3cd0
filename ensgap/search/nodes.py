"""What every node of a cluster is asked before any trial runs: its versions, and whether it sees the storage."""

import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ensgap.errors import UserError
from ensgap.storage import Place, write_whole
from ensgap.versions import versions

SECONDS = 120.0
"""How long the nodes may take to answer; the first answer waits for the code to arrive."""


def alive_nodes() -> list[dict[str, Any]]:
    """The nodes that are there, as Ray describes them."""
    return [node for node in ray.nodes() if node["Alive"]]


def difference(found: Mapping[str, str], expected: Mapping[str, str]) -> str | None:
    """In words, the first version that must be the same everywhere and is not."""
    theirs, ours = _decisive(found), _decisive(expected)
    return next((f"{name} {theirs[name]}, not {ours[name]}" for name in ours if theirs[name] != ours[name]), None)


def _decisive(found: Mapping[str, str]) -> dict[str, str]:
    return {
        "ensgap": found["ensgap"],
        "torch": found["torch"].split("+")[0],  # 2.13.0+cpu here and 2.13.0+cu130 there is as it should be
        "Python": ".".join(found["python"].split(".")[:2]),
    }


def check_versions() -> None:
    """Refuse a cluster of which a node has another ensgap, torch or Python than this process."""
    for node, found in _ask_all(versions).items():
        other = difference(found, versions())
        if other:
            raise UserError(f"The node {node} has {other} as here; install the same versions on all nodes.")


def check_storage(storage: Place) -> None:
    """Refuse a storage that a node cannot read and write: each must find a file of ours, and we the file of each."""
    probe = storage / f".probe-{uuid.uuid4().hex}"
    files = [probe / "driver"]
    try:
        write_whole(files[0], b"")
        answers = _ask_all(_leave_file, probe)
        files += [file for file, _ in answers.values()]
        for node, (file, trouble) in answers.items():
            trouble = trouble or ("" if file.exists() else "what it writes does not arrive here")
            if trouble:
                raise UserError(
                    f"The node {node} does not share the storage {storage} with this process ({trouble}); give "
                    "--storage a path that all nodes see, or a bucket such as s3://name/path."
                )
    finally:
        for file in files:
            file.unlink(missing_ok=True)
        if isinstance(probe, Path) and isinstance(storage, Path):
            for empty in (probe, storage):
                with suppress(OSError):
                    empty.rmdir()


def _leave_file(probe: Place) -> tuple[Place, str]:
    """On a node: find the driver's file and leave one; which, and what went wrong."""
    file = probe / uuid.uuid4().hex
    try:
        if not (probe / "driver").exists():
            return file, "it finds nothing there"
        write_whole(file, b"")
    except OSError as error:
        return file, error.strerror or str(error)
    return file, ""


def _ask_all(question: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """Every node's answer, by the node's name; a node that does not answer is named, one that was lost meanwhile is
    left out.
    """
    task = ray.remote(num_cpus=0, max_retries=0)(question)
    asked = {}
    for node in alive_nodes():
        pinned = task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False))
        asked[pinned.remote(*arguments)] = node
    _, silent = ray.wait(list(asked), num_returns=len(asked), timeout=SECONDS)
    if silent:
        name = _name(asked[silent[0]])
        raise UserError(f"The node {name} does not answer within {SECONDS:g} seconds; look at it with `ray status`.")
    answers = {}
    for reference, node in asked.items():
        try:
            answers[_name(node)] = ray.get(reference)
        except ray.exceptions.RayError as error:
            if node["NodeID"] in {alive["NodeID"] for alive in alive_nodes()}:
                raise UserError(f"The node {_name(node)} cannot run ensgap ({_last_line(error)}).") from None
    return answers


def _name(node: Mapping[str, Any]) -> str:
    return f"{node['NodeManagerAddress']} ({node['NodeID'][:8]})"


def _last_line(error: Exception) -> str:
    return [line.strip() for line in str(error).splitlines() if line.strip()][-1]

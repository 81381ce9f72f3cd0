"""Addresses of clusters that are not there, or not addresses at all."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest

from ensgap.errors import UserError
from ensgap.search.address import check_entry, find_cluster, find_token
from ensgap.search.nodes import difference


def test_an_address_is_taken_as_given_and_auto_is_ray_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "ray://there:10001")
    assert find_cluster("here:6379") == "here:6379"
    assert find_cluster("auto") == "ray://there:10001"


@pytest.mark.parametrize("address", ["local", "here", "http://here:8265", "ray://here", "a b:1", "me:pw@here:6379"])
def test_what_is_no_address_starts_no_cluster(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    for wanted in (address, "auto"):
        with pytest.raises(UserError, match="--cluster takes auto, host:port or ray://host:port"):
            find_cluster(wanted)


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_nobody_at_the_address(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "x" * 32)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        with pytest.raises(UserError, match="No Ray cluster answers at"):
            check_entry(f"{scheme}127.0.0.1:{taken.getsockname()[1]}")


def test_no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: pytest.TempPathFactory) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", f"{tmp_path}/none")
    assert find_token() is None
    with pytest.raises(UserError, match="ray get-auth-token"):
        check_entry("127.0.0.1:1")


def test_versions_that_must_be_the_same() -> None:
    ours = {"ensgap": "0.1", "torch": "2.13.0+cpu", "python": "3.11.7", "numpy": "2.0"}
    assert difference(ours | {"torch": "2.13.0+cu130", "python": "3.11.9", "numpy": "2.1"}, ours) is None
    assert difference(ours | {"torch": "2.12.0"}, ours) == "torch 2.12.0, not 2.13.0"
    assert difference(ours | {"python": "3.12.1"}, ours) == "Python 3.12, not 3.11"
    assert difference(ours | {"ensgap": "0.2"}, ours) == "ensgap 0.2, not 0.1"


class Door(grpc.GenericRpcHandler):
    """Answers every question, to anyone or only to those who have the token."""

    def __init__(self, token: str | None) -> None:
        self.token = token

    def service(self, handler_call_details: Any) -> Any:
        def answer(request: bytes, context: Any) -> bytes:
            shown = dict(handler_call_details.invocation_metadata).get("authorization")
            if self.token is not None and shown != f"Bearer {self.token}":
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "no")
            return b""

        return grpc.unary_unary_rpc_method_handler(answer)


@contextmanager
def door(token: str | None) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(1), handlers=[Door(token)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None)


def test_only_a_cluster_that_asks_for_our_token_is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "ours")
    with door("ours") as address:
        check_entry(address)
        check_entry(f"ray://{address}")
    with door("theirs") as address, pytest.raises(UserError, match="does not accept our token"):
        check_entry(address)
    with door(None) as address:
        with pytest.raises(UserError, match="lets anyone in"):
            check_entry(address)
        monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
        check_entry(address)

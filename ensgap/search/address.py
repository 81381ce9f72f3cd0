"""Where a Ray cluster is, and whether it is there and lets us in.

This is asked before Ray is, because Ray waits for minutes, and then does not say which of these it was.
"""

import os
import re
from pathlib import Path

import grpc  # type: ignore[import-untyped]
from ray._private.services import canonicalize_bootstrap_address

from ensgap.errors import UserError

SECONDS = 10.0
"""How long a cluster may take to answer."""
_ALIVE = {True: "/ray.rpc.RayletDriver/ClusterInfo", False: "/ray.rpc.NodeInfoGcsService/CheckAlive"}  # client or not
_TOKEN_PLACES = "RAY_AUTH_TOKEN, the file that RAY_AUTH_TOKEN_PATH names, or ~/.ray/auth_token"


def find_cluster(wanted: str) -> str:
    """The address to join, `host:port` or `ray://host:port`; `auto` is RAY_ADDRESS, or the Ray that runs here."""
    address = os.environ.get("RAY_ADDRESS", "auto") if wanted == "auto" else wanted
    if address == "auto":
        try:
            address = canonicalize_bootstrap_address("auto") or ""
        except ConnectionError as error:
            several = "multiple" in str(error)
            address = ""
            if several:
                raise UserError("Several Rays run on this machine; say which with --cluster host:port.") from None
    if not address:
        raise UserError(
            "There is no Ray cluster to join: none runs on this machine and RAY_ADDRESS is not set; start one with "
            "`ray start --head`, name it with --cluster host:port, or leave --cluster out to run on this machine."
        )
    if not re.fullmatch(r"(ray://)?(\[[^\]]+\]|[^\s:/@]+):\d+", address):
        raise UserError(f"--cluster takes auto, host:port or ray://host:port, however: {address}.")
    return address


def check_entry(address: str) -> None:
    """Refuse a cluster that is not there, that our token does not open, or that anyone may enter."""
    if os.environ.get("RAY_USE_TLS") == "1":
        return  # certificates decide, and Ray has them
    mode = os.environ.get("RAY_AUTH_MODE", "token")
    token = find_token() if mode == "token" else None
    if mode == "token" and token is None:
        raise UserError(
            f"The token of the cluster at {address} is missing: run `ray get-auth-token` on its head and put it into "
            f"{_TOKEN_PLACES}."
        )
    status = _ask(address, token)
    if status in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNIMPLEMENTED):
        raise UserError(
            f"No Ray cluster answers at {address} (asked for {SECONDS:g} seconds at most); is it running, and is the "
            "port right (6379 as host:port, 10001 as ray://host:port, unless it was started with others)?"
        )
    if status == grpc.StatusCode.UNAUTHENTICATED:
        raise UserError(
            f"The cluster at {address} does not accept our token; run `ray get-auth-token` on its head and put it into "
            f"{_TOKEN_PLACES}."
        )
    if mode == "token" and _ask(address, None) != grpc.StatusCode.UNAUTHENTICATED:
        raise UserError(
            f"The cluster at {address} lets anyone in, to run what they like; start it with RAY_AUTH_MODE=token and a "
            "token (`ray get-auth-token --generate`), or set RAY_AUTH_MODE=disabled to join it all the same."
        )


def find_token() -> str | None:
    """Ray's authentication token, from the places where Ray looks for it."""
    if os.environ.get("RAY_AUTH_TOKEN"):
        return os.environ["RAY_AUTH_TOKEN"].strip()
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    return path.read_text().strip() if path.is_file() else None


def _ask(address: str, token: str | None) -> grpc.StatusCode:
    """What the cluster answers to the question whether it is alive."""
    host = address.removeprefix("ray://")
    metadata = [("authorization", f"Bearer {token}")] if token else None
    with grpc.insecure_channel(host, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            channel.unary_unary(_ALIVE[address != host])(b"", metadata=metadata, timeout=SECONDS)
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK

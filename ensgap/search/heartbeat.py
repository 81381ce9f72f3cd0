"""The driver's sign of life for `python -m ensgap.status`: what it runs, how much of it, and when it last did."""

import contextlib
import os
import platform
import time
from types import TracebackType
from typing import Any

from ray import tune

from ensgap.folder import write_json
from ensgap.storage import Place

SECONDS = 5.0


class Heartbeat(tune.Callback):
    """Writes progress.json into the study's folder while Tune runs, and says there how it ended."""

    def __init__(self, folder: Place, phase: str, trials: int, at_once: int) -> None:
        self.file = folder / "progress.json"
        self.content = {
            "phase": phase,
            "trials": trials,
            "at_once": at_once,
            "host": platform.node(),
            "pid": os.getpid(),
            "started": time.time(),
        }
        self.last = 0.0

    def __enter__(self) -> "Heartbeat":
        self.beat("running")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.beat("ended" if kind is None else "interrupted")

    def beat(self, state: str) -> None:
        """Write the file."""
        self.last = time.time()
        with contextlib.suppress(OSError):  # whoever has something to keep will notice
            write_json(self.file, self.content | {"state": state, "time": self.last})

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Tune calls this in every round of its loop."""
        if time.time() - self.last >= SECONDS:
            self.beat("running")

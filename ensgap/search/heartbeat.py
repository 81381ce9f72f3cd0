"""The driver's sign of life for `python -m ensgap.status`: what it runs, how much of it, and when it last did."""

import contextlib
import os
import platform
import time
from threading import Event, Thread
from types import TracebackType

from ensgap.folder import StudyFolder, write_json

SECONDS = 5.0


class Heartbeat:
    """Writes progress.json into the study's folder while Tune runs, and says there how it ended.

    From a thread and not as one of Tune's callbacks: those are pickled into files and sent to the head, and the place
    may hold a password.
    """

    def __init__(self, folder: StudyFolder, phase: str, trials: int, at_once: int) -> None:
        self.file = folder.path / "progress.json"
        self.content = {
            "phase": phase,
            "ended": sum(1 for _ in folder.trials.glob(f"{phase}-*/trial.json")),
            "trials": trials,
            "at_once": at_once,
            "host": platform.node(),
            "pid": os.getpid(),
            "started": time.time(),
        }
        self.over = Event()
        self.thread = Thread(target=self._beat_on, daemon=True)

    def __enter__(self) -> "Heartbeat":
        self.beat("running")
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over.set()
        self.thread.join()
        self.beat("ended" if kind is None else "interrupted")

    def beat(self, state: str) -> None:
        """Write the file."""
        with contextlib.suppress(OSError):  # whoever has something to keep will notice
            write_json(self.file, self.content | {"state": state, "time": time.time()})

    def _beat_on(self) -> None:
        while not self.over.wait(SECONDS):
            self.beat("running")

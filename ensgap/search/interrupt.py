"""Ctrl-C and SIGTERM during a Tune run: it ends at once and in order, and the study says how to go on.

A KeyboardInterrupt raised inside Tune's event loop can be swallowed by a callback, so while Tune runs the signal is
turned into Tune's own request to stop, and the interrupt is raised when Tune has returned.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def orderly_interrupts() -> Iterator[None]:
    """Within this, the first signal asks Tune to stop; the second stops everything. In a thread beside the main one,
    which gets no signals, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal received
        tune_listens = callable(signal.getsignal(signal.SIGUSR1))  # it does from the start of its loop
        if received or not tune_listens:
            raise KeyboardInterrupt
        received = True
        os.kill(os.getpid(), signal.SIGUSR1)

    before = {number: signal.signal(number, stop) for number in SIGNALS}
    usr1 = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in (before | {signal.SIGUSR1: usr1}).items():
            signal.signal(number, handler)
    if received:
        raise KeyboardInterrupt

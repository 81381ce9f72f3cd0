"""Why a trial failed, in one line, from what Tune writes."""

import pytest

from ensgap.search.failures import reason_of

DEAD = "The actor died unexpectedly before finishing this task.\nThe actor is dead because its worker process has died."


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            f"Failure # 1 (occurred at x)\n{DEAD} (1) killed by the OOM killer due to high memory usage\n",
            "its worker died",
        ),
        (f"{DEAD} Task was killed due to the node running low on memory.", "its node ran out of memory"),
        (
            f"Failure # 1 (x)\n{DEAD}\nFailure # 2 (x)\n  File\ntorch.OutOfMemoryError: CUDA out of memory.\n\n",
            "torch.OutOfMemoryError: CUDA out of memory.",
        ),
        (
            "The actor died because of an error raised in its creation task\nRuntimeError: The node x has torch 1.",
            "RuntimeError: The node x has torch 1.",
        ),
        ("", "unknown"),
    ],
)
def test_reasons(text: str, reason: str) -> None:
    assert reason_of(text).startswith(reason)

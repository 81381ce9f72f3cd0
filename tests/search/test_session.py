"""What a trial gets of this machine, and requests it cannot meet."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import ray
import torch

from ensgap.errors import UserError
from ensgap.search.interrupt import orderly_interrupts
from ensgap.search.session import LocalRay


def test_shares_of_a_gpu_reach_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    session = LocalRay(cpus_per_trial=1, gpus_per_trial=0.25)
    assert session.resources_per_trial == {"cpu": 1, "gpu": 0.25}
    assert session.concurrency == min(session.cpus, 4)
    assert LocalRay().resources_per_trial == {"cpu": 1, "gpu": 1}


def test_what_the_machine_does_not_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert LocalRay().resources_per_trial == {"cpu": 1, "gpu": 0}
    with pytest.raises(UserError, match=r"--gpus-per-trial 0\.25 is more than the 0 GPUs"):
        LocalRay(gpus_per_trial=0.25)
    with pytest.raises(UserError, match="--cpus-per-trial 4096 is more than"):
        LocalRay(cpus_per_trial=4096)


def test_a_ray_that_somebody_else_started_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    with pytest.raises(UserError, match=r"call ray\.shutdown\(\) first"):
        LocalRay().start()


def test_a_thread_beside_the_main_one_gets_no_signals() -> None:
    with ThreadPoolExecutor(1) as threads:

        def inside() -> str:
            with orderly_interrupts():
                return "went through"

        assert threads.submit(inside).result() == "went through"

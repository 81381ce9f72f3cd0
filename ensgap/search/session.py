"""Ray on this machine, started when the first trial needs it and stopped after the study; what a study needs of Ray."""

import logging
import os
from types import TracebackType
from typing import Protocol

import ray
import torch

from ensgap.errors import UserError
from ensgap.storage import Place

WORKER_ENVIRONMENT = {
    "MALLOC_MMAP_MAX_": "0",  # glibc would map and unmap large stacked tensors at every step
    "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
    "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "1",  # the data is read where the node's object store has it
}


class Session(Protocol):
    """What a study needs of Ray."""

    cpus_per_trial: int
    gpus_per_trial: float

    @property
    def concurrency(self) -> int:
        """How many trials run at once."""
        ...

    @property
    def grid_limit(self) -> int | None:
        """At most so many trials of a grid at once; None leaves it to what fits."""
        ...

    @property
    def resources_per_trial(self) -> dict[str, float]:
        """As Ray counts them."""
        ...

    def start(self) -> None:
        """Be ready for trials."""
        ...

    def check_storage(self, storage: Place) -> None:
        """Refuse a storage that trials could not use."""
        ...


class LocalRay:
    """A Ray of this machine's CPUs for the time of a study."""

    def __init__(
        self, cpus_per_trial: int = 1, gpus_per_trial: float | None = None, concurrency: int | None = None
    ) -> None:
        self.cpus_per_trial, self.wanted = cpus_per_trial, concurrency
        self.gpus = torch.cuda.device_count()
        self.gpus_per_trial = min(1, self.gpus) if gpus_per_trial is None else gpus_per_trial
        if self.gpus_per_trial > self.gpus:
            raise UserError(
                f"--gpus-per-trial {self.gpus_per_trial:g} is more than the {self.gpus} GPUs of this machine; "
                "leave it out."
            )
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if cpus_per_trial > cpus:
            raise UserError(f"--cpus-per-trial {cpus_per_trial} is more than the {cpus} CPUs of this machine.")
        self.cpus = cpus
        self.started = False

    @property
    def concurrency(self) -> int:
        """How many trials run at once."""
        fit = self.cpus // self.cpus_per_trial
        if self.gpus_per_trial:
            fit = min(fit, int(self.gpus / self.gpus_per_trial))
        return min(fit, self.wanted or fit)

    @property
    def grid_limit(self) -> int:
        """The same for a grid."""
        return self.concurrency

    def check_storage(self, storage: Place) -> None:
        """Nothing: trials run where the study does."""

    @property
    def resources_per_trial(self) -> dict[str, float]:
        """As Ray counts them."""
        return {"cpu": self.cpus_per_trial, "gpu": self.gpus_per_trial}

    def start(self) -> None:
        """Start Ray, if it is not running yet, and say where its dashboard is."""
        if self.started:
            return
        if ray.is_initialized():  # in a notebook, by its owner
            raise UserError(
                "Ray is already running in this process; call ray.shutdown() first, or name its address with --cluster "
                "from a process of its own."
            )
        logging.getLogger("ray").setLevel(logging.ERROR)
        context = ray.init(
            address="local",
            num_cpus=self.cpus,
            log_to_driver=False,
            logging_level=logging.ERROR,
            include_dashboard=True,
            dashboard_host="127.0.0.1",
            runtime_env={"env_vars": WORKER_ENVIRONMENT},
        )
        self.started = True
        dashboard = f"dashboard http://{context.dashboard_url}" if context.dashboard_url else "no dashboard"
        print(f"Ray on {self.cpus} CPUs, {self.concurrency} trials at once; {dashboard}", flush=True)

    def __enter__(self) -> "LocalRay":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.started:
            ray.shutdown()

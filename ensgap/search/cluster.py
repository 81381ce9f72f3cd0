"""A Ray cluster that is already running: joined for the time of a study, never started."""

import logging
from pathlib import Path
from types import TracebackType

import ray

import ensgap
from ensgap.errors import UserError
from ensgap.search.address import check_entry, find_cluster
from ensgap.search.nodes import alive_nodes, check_storage, check_versions
from ensgap.search.session import WORKER_ENVIRONMENT
from ensgap.storage import Place


class ClusterRay:
    """A running cluster, joined at once, so that what is wrong with it is said before anything is done."""

    def __init__(
        self, address: str, cpus_per_trial: int = 1, gpus_per_trial: float | None = None, concurrency: int | None = None
    ) -> None:
        self.address = find_cluster(address)
        self.cpus_per_trial, self.wanted = cpus_per_trial, concurrency
        self.asked_gpus = gpus_per_trial

    def __enter__(self) -> "ClusterRay":
        """Join, check every node's versions, and say what there is."""
        check_entry(self.address)
        logging.getLogger("ray").setLevel(logging.ERROR)
        try:
            context = ray.init(
                address=self.address,
                log_to_driver=self.address.startswith("ray://"),  # whose trials are counted on the head
                logging_level=logging.ERROR,
                runtime_env={"env_vars": WORKER_ENVIRONMENT, "py_modules": [str(Path(ensgap.__file__).parent)]},
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise UserError(f"The cluster at {self.address} cannot be joined: {_sentence(error)}") from None
        try:
            check_versions()
            self._count()
        except BaseException:
            ray.shutdown()
            raise
        dashboard = f"dashboard http://{context.dashboard_url}" if context.dashboard_url else "no dashboard"
        print(
            f"Ray cluster at {self.address}: {self.nodes} nodes, {self.cpus:g} CPUs, {self.gpus:g} GPUs, "
            f"{self.concurrency} trials at once; {dashboard}",
            flush=True,
        )
        return self

    def _count(self) -> None:
        nodes = [node["Resources"] for node in alive_nodes()]
        self.nodes = len(nodes)
        self.cpus, self.gpus = (sum(node.get(kind, 0.0) for node in nodes) for kind in ("CPU", "GPU"))
        self.gpus_per_trial = min(1.0, self.gpus) if self.asked_gpus is None else self.asked_gpus
        fit = sum(self._fitting(node) for node in nodes)
        if fit == 0 and self.wanted is None:
            raise UserError(
                f"No node of the cluster at {self.address} has the {self.cpus_per_trial} CPUs and "
                f"{self.gpus_per_trial:g} GPUs of a trial; ask for less with --cpus-per-trial and --gpus-per-trial, "
                "or, if the cluster grows when it is needed, say with --concurrency how many trials to run at once."
            )
        self.concurrency = self.wanted or fit

    def _fitting(self, node: dict[str, float]) -> int:
        """How many trials run on a node at once."""
        fit = int(node.get("CPU", 0) // self.cpus_per_trial)
        return min(fit, int(node.get("GPU", 0) / self.gpus_per_trial)) if self.gpus_per_trial else fit

    @property
    def grid_limit(self) -> int | None:
        """At most so many trials of a grid at once: as many as fit, so that nodes which join later get their share."""
        return self.wanted

    @property
    def resources_per_trial(self) -> dict[str, float]:
        """As Ray counts them."""
        return {"cpu": self.cpus_per_trial, "gpu": self.gpus_per_trial}

    def start(self) -> None:
        """Nothing: it has been joined."""

    def check_storage(self, storage: Place) -> None:
        """Refuse a storage that not all nodes see."""
        check_storage(storage)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ray.shutdown()


def _sentence(error: Exception) -> str:
    """The first line of an error, as the end of a sentence."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".") + "."

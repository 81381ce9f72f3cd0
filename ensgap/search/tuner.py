"""Runs specs as Ray Tune trials."""

import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ray import tune
from ray.tune.search import Searcher

from ensgap.errors import UserError
from ensgap.folder import StudyFolder
from ensgap.points import Points
from ensgap.search.failures import Failure, KeepErrorText, StopOnTrouble, find_failures, find_trouble
from ensgap.search.heartbeat import Heartbeat
from ensgap.search.interrupt import orderly_interrupts
from ensgap.search.progress import SearchProgress
from ensgap.search.session import Session
from ensgap.search.trial import Machine, Trial
from ensgap.spec import TrialSpec, describe_point
from ensgap.stack import Kernels
from ensgap.tasks import Task
from ensgap.versions import versions


@dataclass(frozen=True)
class Runner:
    """What all trials of a study share; data goes to each node once, through Ray's object store."""

    folder: StudyFolder
    task: Task
    pool: Points
    ray: Session
    kernels: Kernels = "auto"
    checkpoint_every: int | None = None
    retries: int = 3
    objective: str = "nll"  # what the progress shows
    prune: bool = False  # stop trials that are beaten by that objective

    def run_grid(self, specs: Sequence[TrialSpec], test: Points | None = None) -> None:
        """Train the specs that the folder does not have yet; they differ in what a point has only."""
        self._train_grid([spec for spec in specs if self.folder.find(spec) is None], test)
        self.require(specs)

    def _train_grid(self, pending: Sequence[TrialSpec], test: Points | None = None) -> None:
        for attempt in range(2):
            if pending:
                space = {"point": tune.grid_search([spec.to_point() for spec in pending])}
                failures = self._fit(pending[0], len(pending), test, param_space=space, num_samples=1)
                pending = self._record(failures, give_up=attempt == 1)

    def _record(self, failures: Sequence[Failure], give_up: bool) -> list[TrialSpec]:
        """Record trials that failed; those that Tune did not try again, because they died before they had begun, are
        returned for one more attempt.
        """
        again = []
        for failure in failures:
            if failure.never_began and not give_up:
                again.append(failure.spec)
            elif self.folder.find(failure.spec) is None:
                self.folder.fail(failure.spec, failure.reason)
        return again

    def require(self, specs: Sequence[TrialSpec]) -> None:
        """Stop here unless all of these trials have ended, and not all have failed."""
        missing = [spec for spec in specs if self.folder.find(spec) is None]
        reasons = [record.details["reason"] for spec in missing if (record := self.folder.find_failure(spec.key))]
        if len(reasons) < len(missing) or (missing and len(missing) == len(specs)):
            why = f" ({reasons[0]})" if reasons else ""
            raise UserError(f"{len(missing)} of {len(specs)} trials failed{why}; {self.where_errors_are}.")

    @property
    def where_errors_are(self) -> str:
        """What to do about failed trials."""
        ray = self.folder.local / "ray"
        return f"what went wrong stands in the files error.txt below {ray}, and --resume tries them again"

    def run_search(self, base: TrialSpec, searcher: Searcher, samples: int) -> None:
        """Train what a searcher suggests."""
        if samples > 0:
            failures = self._fit(base, samples, None, search_alg=searcher, num_samples=samples)
            self._train_grid(self._record(failures, give_up=False))

    def _fit(
        self,
        base: TrialSpec,
        trials: int,
        test: Points | None,
        num_samples: int,
        param_space: dict[str, Any] | None = None,
        search_alg: Searcher | None = None,
    ) -> list[Failure]:
        self.ray.start()
        logging.getLogger("ray.tune").setLevel(logging.ERROR)
        progress = SearchProgress(
            base.phase, trials, base.train.epochs if base.stopping is None else None, self.objective
        )
        folder = self.folder.absolute()
        heartbeat = Heartbeat(folder, base.phase, trials, self.ray.concurrency)
        with progress, heartbeat, warnings.catch_warnings(action="ignore"), orderly_interrupts():
            shared = tune.with_parameters(
                Trial,
                base=base,
                task=self.task.without_data(),
                pool=self.pool,
                test=test,
                folder=folder,
                machine=self._machine(),
                prune=self.objective if self.prune and base.phase == "search" else None,
            )
            results = tune.Tuner(
                tune.with_resources(shared, self.ray.resources_per_trial),
                param_space=param_space,
                tune_config=tune.TuneConfig(
                    num_samples=num_samples,
                    search_alg=search_alg,
                    max_concurrent_trials=self.ray.grid_limit if search_alg is None else self.ray.concurrency,
                    reuse_actors=True,
                    trial_name_creator=_trial_name,
                    trial_dirname_creator=_trial_name,
                ),
                run_config=tune.RunConfig(
                    name=base.phase,
                    storage_path=str(folder.local.resolve() / "ray"),
                    verbose=0,
                    callbacks=[progress, KeepErrorText()],
                    stop=StopOnTrouble(),
                    failure_config=tune.FailureConfig(max_failures=self.retries),
                    checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
                ),
            ).fit()
        trouble = find_trouble(results)
        if trouble is not None:
            raise UserError(trouble)
        return find_failures(results, base)

    def _machine(self) -> Machine:
        gpu = self.ray.gpus_per_trial > 0
        return Machine(self.ray.cpus_per_trial, gpu, self.kernels, self.checkpoint_every, versions())


def _trial_name(trial: Any) -> str:
    return f"{describe_point(trial.config.get('point', trial.config))}-{trial.trial_id}"

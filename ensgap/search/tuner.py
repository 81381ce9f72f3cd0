"""Runs specs as Ray Tune trials."""

import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ray import tune
from ray.tune.search import Searcher

from ensgap.errors import UserError
from ensgap.folder import StudyFolder
from ensgap.points import Points
from ensgap.search.interrupt import orderly_interrupts
from ensgap.search.progress import SearchProgress
from ensgap.search.session import LocalRay
from ensgap.search.trial import Machine, Trial
from ensgap.spec import TrialSpec, describe_point
from ensgap.stack import Kernels
from ensgap.tasks import Task


@dataclass(frozen=True)
class Runner:
    """What all trials of a study share; data goes to each node once, through Ray's object store."""

    folder: StudyFolder
    task: Task
    pool: Points
    ray: LocalRay
    kernels: Kernels = "auto"
    objective: str = "nll"  # what the progress shows

    def run_grid(self, specs: Sequence[TrialSpec], test: Points | None = None) -> None:
        """Train the specs that the folder does not have yet; they differ in what a point has only."""
        pending = [spec for spec in specs if self.folder.find(spec) is None]
        if pending:
            space = {"point": tune.grid_search([spec.to_point() for spec in pending])}
            self._fit(pending[0], len(pending), test, param_space=space, num_samples=1)
        self.require(specs)

    def require(self, specs: Sequence[TrialSpec]) -> None:
        """Stop here unless all of these trials have ended."""
        missing = sum(self.folder.find(spec) is None for spec in specs)
        if missing:
            raise UserError(f"{missing} of {len(specs)} trials failed; {self.where_errors_are}.")

    @property
    def where_errors_are(self) -> str:
        """What to do about failed trials."""
        ray = self.folder.path / "ray"
        return f"what went wrong stands in the files error.txt below {ray}, and --resume tries them again"

    def run_search(self, base: TrialSpec, searcher: Searcher, samples: int) -> None:
        """Train what a searcher suggests."""
        if samples > 0:
            self._fit(base, samples, None, search_alg=searcher, num_samples=samples)

    def _fit(
        self,
        base: TrialSpec,
        trials: int,
        test: Points | None,
        num_samples: int,
        param_space: dict[str, Any] | None = None,
        search_alg: Searcher | None = None,
    ) -> None:
        self.ray.start()
        logging.getLogger("ray.tune").setLevel(logging.ERROR)
        folder = replace(self.folder, path=self.folder.path.resolve())
        progress = SearchProgress(
            base.phase, trials, base.train.epochs if base.stopping is None else None, self.objective
        )
        with progress, warnings.catch_warnings(action="ignore"), orderly_interrupts():
            shared = tune.with_parameters(
                Trial,
                base=base,
                task=self.task,
                pool=self.pool,
                test=test,
                folder=folder,
                machine=Machine(self.ray.cpus_per_trial, self.ray.gpus_per_trial > 0, self.kernels),
            )
            tune.Tuner(
                tune.with_resources(shared, self.ray.resources_per_trial),
                param_space=param_space,
                tune_config=tune.TuneConfig(
                    num_samples=num_samples,
                    search_alg=search_alg,
                    max_concurrent_trials=self.ray.concurrency,
                    reuse_actors=True,
                    trial_name_creator=_trial_name,
                    trial_dirname_creator=_trial_name,
                ),
                run_config=tune.RunConfig(
                    name=base.phase,
                    storage_path=str(folder.path / "ray"),
                    verbose=0,
                    callbacks=[progress],
                    checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
                ),
            ).fit()


def _trial_name(trial: Any) -> str:
    return f"{describe_point(trial.config.get('point', trial.config))}-{trial.trial_id}"

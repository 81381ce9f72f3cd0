"""The figures of a study that looks for both optima, recomputed from the predictions in its folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ensgap import losses, metrics
from ensgap.errors import UserError
from ensgap.folder import Status, StudyFolder, TrialRecord
from ensgap.gap import Array, Estimate, Selection, optimality_gap, select
from ensgap.hyperparameters import Setting, Value, order_of
from ensgap.predictions import Predictions
from ensgap.spec import Phase
from ensgap.storage import Place

UNUSABLE: tuple[Status, ...] = ("failed", "diverged", "pruned")


@dataclass(frozen=True)
class SettingFigures:
    """One setting's figures, a value per replicate; none unless it finished."""

    setting: Setting
    status: Status  # finished only if all its trials did
    replicates: tuple[int, ...]
    figures: Mapping[str, Array]  # name -> [replicates]
    curves: Mapping[str, Array]  # metric -> [sizes, replicates]
    seconds: float

    @property
    def usable(self) -> bool:
        """Whether it was trained to the end, and so may be selected."""
        return self.status == "finished"

    @property
    def diverged(self) -> bool:
        """Whether a loss of it stopped being a finite number."""
        return self.status == "diverged"

    @property
    def failed(self) -> bool:
        """Whether it failed: for want of memory, or because its node was lost too often."""
        return self.status == "failed"

    @property
    def weight_decay(self) -> float:
        """The setting's weight decay."""
        return float(self.setting["weight_decay"])

    def estimate(self, name: str) -> Estimate:
        """Mean and uncertainty over replicates."""
        return Estimate.of(self.figures[name])


@dataclass(frozen=True)
class StudyResults:
    """Everything a report is made from."""

    study: Mapping[str, object]  # study.json
    config: Mapping[str, object]
    trials: tuple[SettingFigures, ...]  # of the search, by setting
    selection: Selection
    test: Mapping[str, SettingFigures]  # "ind" and "ens"
    gap: Mapping[str, Estimate]  # of every metric
    further: tuple[SettingFigures, ...] = ()  # tested too, by setting; only those that finished

    @property
    def objective(self) -> str:
        """The metric that the two optima minimise."""
        return str(self.config.get("objective", "nll"))

    @property
    def metrics(self) -> tuple[str, ...]:
        """Those of its predictions, the trained loss first."""
        return tuple(self.gap)

    @property
    def loss(self) -> losses.Loss:
        """What its members learned."""
        return "regression" if "rmse" in self.gap else "classification"

    @property
    def pairs(self) -> int:
        """How many replicates were tested at both optima."""
        return len(set(self.test["ind"].replicates) & set(self.test["ens"].replicates))

    def cost(self) -> dict[str, float]:
        """Seconds of training, and what two separate searches would have taken."""
        search = sum(trial.seconds for trial in self.trials)
        tested = {order_of(t.setting): t.seconds for t in (*self.test.values(), *self.further)}
        return {
            "search_seconds": search,
            "two_searches_seconds": 2 * search,
            "test_seconds": sum(tested.values()),
            "wall_seconds": float(str(self.study["seconds"])),
        }

    @property
    def hyperparameters(self) -> tuple[str, ...]:
        """Those that were tried with different values, or all if none was."""
        names = dict.fromkeys(name for trial in self.trials for name in trial.setting)
        differ = [n for n in names if len({repr(trial.setting.get(n)) for trial in self.trials}) > 1]
        return tuple(differ or names)

    @property
    def h_ind(self) -> SettingFigures:
        """The best setting for the average member."""
        return self.trials[self.selection.ind.trial]

    @property
    def h_ens(self) -> SettingFigures:
        """The best setting for the ensemble."""
        return self.trials[self.selection.ens.trial]


def read_settings(folder: StudyFolder, phase: Phase) -> list[SettingFigures]:
    """All settings of a phase, by setting, each with the replicates of all its trials."""
    groups: dict[tuple[tuple[str, bool, Value], ...], list[tuple[TrialRecord, Place]]] = {}
    for record, path in (*folder.ended_trials(phase), *folder.failed_trials(phase)):
        groups.setdefault(order_of(record.setting), []).append((record, path))
    return [_join(groups[setting]) for setting in sorted(groups)]


def _join(group: Sequence[tuple[TrialRecord, Place]]) -> SettingFigures:
    """One setting from its trials; a replicate that two of them trained counts once."""
    replicates: list[int] = []
    figures: dict[str, list[Array]] = {}
    curves: dict[str, list[Array]] = {}
    for record, path in group:
        if record.status != "finished":
            continue
        ids = record.identity["replicates"]
        new = [row for row, replicate in enumerate(ids) if replicate not in replicates]
        replicates += [ids[row] for row in new]
        predictions = Predictions.load(path / "predictions.npz")
        for name, values in metrics.evaluate(predictions).items():
            figures.setdefault(name, []).append(values.numpy()[new])
        for name, values in metrics.size_curves(predictions).items():
            curves.setdefault(name, []).append(values.numpy()[:, new])
    return SettingFigures(
        setting=group[0][0].setting,
        status=next((bad for bad in UNUSABLE if bad in {record.status for record, _ in group}), "finished"),
        replicates=tuple(replicates),
        figures={name: np.concatenate(parts) for name, parts in figures.items()},
        curves={name: np.concatenate(parts, axis=1) for name, parts in curves.items()},
        seconds=sum(record.seconds for record, _ in group),
    )


def search_predictions(folder: StudyFolder, setting: Setting) -> Predictions:
    """What the search's ensembles of a setting predicted at the points they held out."""
    found = [path for record, path in folder.ended_trials("search") if record.setting == setting and record.files]
    return Predictions.join([Predictions.load(path / "predictions.npz") for path in found])


def select_settings(trials: Sequence[SettingFigures], objective: str = "nll") -> Selection:
    """h*_ind and h*_ens of a search."""
    nothing = np.empty(0)
    ind, ens = losses.objective_names(objective)
    return select(
        [t.figures.get(ind, nothing) for t in trials],
        [t.figures.get(ens, nothing) for t in trials],
        [not t.usable for t in trials],
    )


def read_results(folder: StudyFolder) -> StudyResults:
    """Selection on validation data, then the test of what it selected; nothing is trained."""
    study = folder.read_study()
    trials = read_settings(folder, "search")
    if not trials:
        raise UserError(f"No trial of the study in {folder.path} has ended yet; continue it with --resume.")
    if len({t.replicates for t in trials if t.usable}) > 1:
        raise UserError(f"Some settings of the study in {folder.path} lack replicates; continue it with --resume.")
    selection = select_settings(trials, study["config"].get("objective", "nll"))
    tested = {order_of(t.setting): t for t in read_settings(folder, "test")}
    test: dict[str, SettingFigures] = {}
    for name, choice in (("ind", selection.ind), ("ens", selection.ens)):
        setting = trials[choice.trial].setting
        if order_of(setting) not in tested:
            raise UserError(
                f"The study in {folder.path} has not tested {dict(setting)} yet; continue it with --resume."
            )
        test[name] = tested[order_of(setting)]
    gap = optimality_gap(*_paired(test["ind"], test["ens"]))
    chosen = {order_of(t.setting) for t in test.values()}
    further = tuple(t for key, t in tested.items() if key not in chosen and t.usable)
    return StudyResults(study, dict(study["config"]), tuple(trials), selection, test, gap, further)


def _paired(ind: SettingFigures, ens: SettingFigures) -> tuple[dict[str, Array], dict[str, Array]]:
    """The ensemble's metrics at both settings, at the seeds they have in common and in the same order."""
    common = sorted(set(ind.replicates) & set(ens.replicates))
    if not common:
        raise UserError(
            "The retrained ensembles diverged or failed at one of the two optima, so there is no gap; --resume "
            "tries failed ones again, and a lower --lr with another --out may not diverge."
        )

    def at(side: SettingFigures) -> dict[str, Array]:
        rows = [side.replicates.index(replicate) for replicate in common]
        loss: losses.Loss = "regression" if "ensemble_rmse" in side.figures else "classification"
        return {metric: side.figures[f"ensemble_{metric}"][rows] for metric in losses.METRICS[loss]}

    return at(ind), at(ens)

"""Greedy selection across the settings of a search, from its saved validation predictions; nothing is trained."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ensgap import metrics
from ensgap.folder import StudyFolder
from ensgap.gap import Array, Estimate
from ensgap.greedy import choose, halves, nll_by_size
from ensgap.hyperparameters import Setting, order_of
from ensgap.predictions import Predictions
from ensgap.results.optima import StudyResults
from ensgap.storage import Place

WAYS = ("ind", "ens", "greedy")
Picks = dict[tuple[str, int, int], list[int]]
"""Who is in an ensemble: (way, replicate, half that it is measured at) -> members, by place among all candidates."""


@dataclass(frozen=True)
class GreedyResults:
    """Three ensembles of the same size, chosen by NLL at one half of the validation points and measured at the other.

    `ind` and `ens` are the best settings for the average member and for the ensemble, over all replicates; `greedy`
    takes any members of the same replicate.
    """

    size: int
    replicates: tuple[int, ...]
    settings: tuple[Setting, ...]  # there was to choose from
    figures: Mapping[str, Mapping[str, Array]]  # way -> name -> [replicates]
    curves: Mapping[str, Array]  # way -> NLL [sizes, replicates]
    shares: Array  # [settings]: of the greedy ensemble's members, chosen at all points, the mean over replicates

    @property
    def gain(self) -> Estimate:
        """How much lower the NLL of the greedy ensemble is than that of the best setting for the ensemble."""
        return Estimate.of(self.figures["ens"]["ensemble_nll"] - self.figures["greedy"]["ensemble_nll"])


@dataclass(frozen=True)
class _Replicate:
    """All candidates of a replicate, and the points they share."""

    labels: Tensor  # [points]
    index: Tensor
    log_likelihoods: Array  # [settings, members, points]
    files: Sequence[tuple[Place, int]]  # of each setting: its predictions, and the replicate's row in them

    def flat(self) -> Array:
        """[settings · members, points]."""
        return self.log_likelihoods.reshape(-1, self.log_likelihoods.shape[-1])


def read_greedy(folder: StudyFolder, results: StudyResults) -> GreedyResults | None:
    """The comparison; none where members do not share their holdout, or there is only one setting."""
    size = int(str(results.config["members"]))
    if int(str(results.config["holdout"])) != size:
        return None
    settings, groups = _read(folder)
    if len(settings) < 2 or not groups:
        return None
    picks = dict(_picks(groups, size))
    figures: dict[str, dict[str, list[float]]] = {way: {} for way in WAYS}
    curves: dict[str, list[Array]] = {way: [] for way in WAYS}
    shares = np.zeros(len(settings))
    for replicate, group in groups.items():
        logits = _logits(group, {who for (_, r, _), chosen in picks.items() if r == replicate for who in chosen})
        places = halves(group.labels.numpy(), replicate)
        for way in WAYS:
            measured = [_measure(group, logits, picks[way, replicate, half], places[half]) for half in (0, 1)]
            for name in measured[0]:
                mean = (measured[0][name] + measured[1][name]) / 2
                figures[way].setdefault(name, []).append(mean)
            curves[way].append(_curve(way, group, [picks[way, replicate, half] for half in (0, 1)], places))
        chosen = np.array(choose(group.flat(), size)) // size
        shares += np.bincount(chosen, minlength=len(settings)) / size / len(groups)
    return GreedyResults(
        size=size,
        replicates=tuple(groups),
        settings=settings,
        figures={way: {name: np.array(v) for name, v in named.items()} for way, named in figures.items()},
        curves={way: np.stack(values, axis=1) for way, values in curves.items()},
        shares=shares,
    )


def _read(folder: StudyFolder) -> tuple[tuple[Setting, ...], dict[int, _Replicate]]:
    """All settings that finished, and by replicate what their members give its validation points."""
    ended = [(record, path) for record, path in folder.ended_trials("search") if record.status == "finished"]
    settings = {order_of(record.setting): record.setting for record, _ in ended}
    found: dict[int, dict[object, tuple[Place, int, Array, Tensor, Tensor]]] = {}
    for record, path in ended:
        predictions = Predictions.load(path / "predictions.npz")
        labels = predictions.labels.unsqueeze(1).expand(predictions.held.shape)
        likelihoods = (
            metrics.log_likelihoods(predictions.logits, labels).float().numpy()
        )  # [ensembles, members, points]
        for row, replicate in enumerate(record.identity["replicates"]):
            at = (path, row, likelihoods[row], predictions.labels[row], predictions.index[row])
            found.setdefault(replicate, {}).setdefault(order_of(record.setting), at)
    groups = {}
    for replicate, by_setting in sorted(found.items()):
        if by_setting.keys() == settings.keys():
            ordered = [by_setting[key] for key in settings]
            _, _, _, labels, index = ordered[0]
            if all(torch.equal(index, other) for *_, other in ordered):
                likelihoods = np.stack([likelihood for _, _, likelihood, _, _ in ordered])
                files = [(path, row) for path, row, *_ in ordered]
                groups[replicate] = _Replicate(labels, index, likelihoods, files)
    return tuple(settings.values()), groups


def _picks(groups: Mapping[int, _Replicate], size: int) -> Iterator[tuple[tuple[str, int, int], list[int]]]:
    """Who each way takes for each replicate, seeing one half of its points, to be measured at the other."""
    for half in (0, 1):
        seen = {
            r: group.log_likelihoods[:, :, halves(group.labels.numpy(), r)[1 - half]] for r, group in groups.items()
        }
        member = np.mean([values.mean((1, 2)) for values in seen.values()], axis=0)  # [settings]
        together = np.mean([np.logaddexp.reduce(values, axis=1).mean(1) for values in seen.values()], axis=0)
        for replicate, values in seen.items():
            for way, best in (("ind", int(member.argmax())), ("ens", int(together.argmax()))):
                yield (way, replicate, half), list(range(best * size, (best + 1) * size))
            yield ("greedy", replicate, half), choose(values.reshape(-1, values.shape[-1]), size)


def _logits(group: _Replicate, wanted: set[int]) -> dict[int, Tensor]:  # candidate -> [points, classes]
    """The logits of some candidates, read from their files."""
    size = group.log_likelihoods.shape[1]
    found: dict[int, Tensor] = {}
    for place, (path, row) in enumerate(group.files):
        own = [who for who in wanted if who // size == place]
        if own:
            logits = Predictions.load(path / "predictions.npz").logits[row]
            found |= {who: logits[who % size] for who in own}
    return found


def _measure(group: _Replicate, logits: Mapping[int, Tensor], who: Sequence[int], places: Array) -> dict[str, float]:
    at = torch.from_numpy(places)
    members = torch.stack([logits[one][at] for one in who]).unsqueeze(0)  # [1, members, points, classes]
    held = torch.ones(members.shape[:3], dtype=torch.bool)
    predictions = Predictions(members, group.labels[at].unsqueeze(0), held, group.index[at].unsqueeze(0))
    return {name: float(values[0]) for name, values in metrics.evaluate(predictions).items()}


def _curve(way: str, group: _Replicate, who: Sequence[Sequence[int]], places: Sequence[Array]) -> Array:  # -> [sizes]
    """NLL against size: of the first so many of the greedy choice, else of the mean over cyclic subsets."""
    found = []
    for own, at in zip(who, places, strict=True):
        values = group.flat()[list(own)][:, at]  # [members, points]
        turns = [values] if way == "greedy" else [np.roll(values, -i, axis=0) for i in range(len(values))]
        found.append(np.mean([nll_by_size(turn) for turn in turns], axis=0))
    curve: Array = np.mean(found, axis=0)
    return curve

"""Weight-decay searches made of predictions whose figures are known exactly.

At weight decay 0 every point has one member (in turn) that is nearly sure of the wrong class, and the others are nearly
sure of the right one; at 0.1 all members give the right class the same probability. So small ensembles are better at
0.1 and larger ones at 0.
"""

import math
from collections.abc import Mapping
from pathlib import Path

import torch

from ensgap.folder import StudyFolder, TrialRecord
from ensgap.plans.weight_decay import WeightDecayConfig
from ensgap.predictions import Predictions
from ensgap.spec import TrialSpec
from ensgap.tasks import get_task

MEMBERS, POINTS = 4, 48
HIGH, LOW = 0.95, 0.05
FLAT = math.exp(-0.35)


def nll_at_zero(size: int) -> float:
    """Of sub-ensembles of a size at weight decay 0."""
    share = size / MEMBERS
    return -share * math.log(((size - 1) * HIGH + LOW) / size) - (1 - share) * math.log(HIGH)


def predictions(spec: TrialSpec) -> Predictions:
    ensembles = len(spec.replicates)
    if spec.setting["weight_decay"] == 0:
        wrong = torch.arange(POINTS) % MEMBERS == torch.arange(MEMBERS).unsqueeze(1)
        right = torch.where(wrong, LOW, HIGH).double()
    else:
        right = torch.full((MEMBERS, POINTS), FLAT, dtype=torch.float64)
    logits = torch.stack([(1 - right).log(), right.log()], -1)  # the label is always 1
    chunk = torch.arange(POINTS) * MEMBERS // POINTS
    order = MEMBERS if spec.holdout is None else spec.holdout.order
    held = ((chunk - torch.arange(MEMBERS).unsqueeze(1)) % MEMBERS) < order
    return Predictions(
        logits=logits.repeat(ensembles, 1, 1, 1),
        labels=torch.ones(ensembles, POINTS, dtype=torch.int64),
        held=held.repeat(ensembles, 1, 1),
        index=torch.arange(POINTS).repeat(ensembles, 1),
        identity=spec.identity(),
    )


def write_search(path: Path, holdout: str = "shared", tested: tuple[float, ...] = (0.0, 0.1)) -> StudyFolder:
    """A finished search on NCI1, with 5 replicates and as many test replicates of the weight decays named."""
    config = WeightDecayConfig(
        task="nci1",
        members=MEMBERS,
        grid=(0.1,),
        replicates=5,
        test_replicates=5,
        val_fraction=0.2,
        holdout=holdout,
    )
    plan = config.plan(get_task("nci1"))
    folder = StudyFolder(path)
    specs = [spec for value in plan.grid for spec in plan.search_trials({"weight_decay": value})]
    specs += [spec for value in tested for spec in plan.test_trials({"weight_decay": value})]
    for spec in specs:
        folder.finish(spec, TrialRecord(spec.identity(), "finished", 9, 1.0, {}), {"predictions": predictions(spec)})
    study: Mapping[str, object] = {"config": plan.to_json(), "data": {"pool": 240, "test": POINTS, "notes": []}}
    folder.write_study({**study, "command": "python studies/x.py", "versions": {}, "seconds": 1.0})
    return folder

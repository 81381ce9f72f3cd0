"""`python -m ensgap.publish FOLDER DESTINATION`: a study small enough to commit.

Takes its records and its predictions, logits rounded, and builds the report from those, so that everybody who
has the destination can rebuild every table. Ray's logs, checkpoints and weights stay behind, so do figures as PDF and
the page, which `python -m ensgap.report DESTINATION` makes, and of very large test data all but a share. Done again
while a study goes on, it adds what has come since.
"""

import argparse
import json
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ensgap.errors import UserError
from ensgap.folder import StudyFolder
from ensgap.plans.weight_decay import repeats_paper
from ensgap.predictions import Predictions
from ensgap.report import write_report
from ensgap.secrets import mask
from ensgap.storage import Place, open_place, write_whole
from ensgap.tasks import TASKS

TEST_POINTS = 10_000
"""Test data of more points is thinned out evenly, to the same points in all trials."""
LOGIT_STEP = {"search": 1 / 1024, "test": 1 / 128, "holdout": 1 / 32}
"""To multiples of what logits are rounded: finest where settings are selected, whose figures can be very close; fine at
test data; coarse at the points held out, where rules stop and temperatures are fitted.
"""
NOT_REPEATED = ("--out", "--data-dir", "--storage", "--cluster")
"""Flags of a command that are about the machine, not about the study."""


def publish(source: Place, destination: Path, test_points: int = TEST_POINTS) -> StudyFolder:
    """The published study; its report is written. Where no report can be made yet, nothing new is left there."""
    found, published = StudyFolder.of(source), StudyFolder(destination)
    study, new = found.read_study(), not published.exists()
    if not new and _what(published.read_study()) != _what(study):
        raise UserError(f"{destination} holds another study; choose another destination, or delete it.")
    record = _record(study, destination, test_points)
    if not new and published.read_study().get("test_points") != record.get("test_points"):
        shutil.rmtree(destination / "trials")
    published.write_study(record)
    records: list[Place] = [*found.trials.glob("*/trial.json")]
    for file in sorted(records, key=str):
        _copy_trial(file.parent, published.trials / file.parent.name, test_points)
    try:
        write_report(published, kinds=("png",))
        (destination / "report.html").unlink()
    except UserError as error:
        if new:
            shutil.rmtree(destination)
        raise UserError(str(error).replace(str(destination), str(source))) from None
    return published


def _what(study: dict[str, dict[str, object]]) -> list[object]:
    return [study["config"][name] for name in ("study", "task", "members", "seed", "train_fraction")]


def _record(study: dict[str, Any], destination: Path, test_points: int) -> dict[str, Any]:
    """What study.json says, without places of the machine; and what older ones do not say yet."""
    config = study["config"] | {"out": destination.name}
    if config["study"] == "weight_decay" and config["task"] in TASKS:
        config = {"as_paper": repeats_paper(TASKS[config["task"]], config)} | config
    found = {name: value for name, value in study.items() if name != "storage"}
    found |= {"config": config, "command": _portable(study["command"])}
    data = study["data"]
    if data["test"] > test_points:
        note = f"Published with {test_points:,} of the {data['test']:,} test points: the figures are of those."
        found |= {"test_points": test_points, "data": data | {"notes": [*data["notes"], note]}}
    return found


def _portable(command: str) -> str:
    """The command without flags that are about the machine."""
    words = shlex.split(command)
    places = [i for i, word in enumerate(words) if word.partition("=")[0] in NOT_REPEATED]
    values = {i + 1 for i in places if "=" not in words[i] and not "".join(words[i + 1 : i + 2]).startswith("--")}
    gone = {*places, *values}
    return shlex.join([word for i, word in enumerate(words) if i not in gone])


def _copy_trial(source: Place, destination: Place, test_points: int) -> None:
    """The record last, so that a trial which has one is complete."""
    record = json.loads((source / "trial.json").read_bytes())
    record["details"].pop("reason", None)  # of a failure: it may name places of the machine
    record["details"] = _rounded(record["details"])
    content = (json.dumps(record) + "\n").encode()
    if (destination / "trial.json").exists() and (destination / "trial.json").read_bytes() == content:
        return
    files: list[Place] = [*source.glob("*.npz")]
    for file in files:
        predictions = Predictions.load(file)
        phase = "test" if file.name.endswith("test.npz") else record["identity"]["phase"]
        if phase == "test":
            predictions = _thinned(predictions, test_points)
        predictions.save(destination / file.name, LOGIT_STEP[phase])
    write_whole(destination / "trial.json", content)


def _rounded(details: Any) -> Any:
    """The same with six digits of every number: curves over epochs are most of a record."""
    if isinstance(details, dict):
        return {name: _rounded(value) for name, value in details.items()}
    if isinstance(details, list):
        return [_rounded(value) for value in details]
    return float(f"{details:.6g}") if isinstance(details, float) else details


def _thinned(test: Predictions, most: int) -> Predictions:
    """At most so many points, evenly spaced."""
    points = test.labels.shape[1]
    if points <= most:
        return test
    kept = torch.arange(most) * points // most
    logits, held = test.logits[:, :, kept], test.held[:, :, kept]
    return replace(test, logits=logits, held=held, labels=test.labels[:, kept], index=test.index[:, kept])


def size_of(folder: Path) -> int:
    """Bytes of all files below."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m ensgap.publish", description=__doc__)
    parser.add_argument("folder", help="a study's folder, or its address in a bucket")
    parser.add_argument("destination", type=Path, help="such as reports/published/weight_decay-nci1")
    parser.add_argument(
        "--test-points", type=int, default=TEST_POINTS, help="test points to keep (default: %(default)s)"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # small computations, which several threads only slow down
    try:
        publish(open_place(arguments.folder), arguments.destination, arguments.test_points)
    except UserError as error:
        print(f"ensgap.publish: {mask(str(error))}", file=sys.stderr)
        sys.exit(2)
    print(f"Published {arguments.destination / 'report.md'}, {size_of(arguments.destination) / 1e6:.1f} MB in all")

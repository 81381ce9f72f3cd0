"""`python -m ensgap.publish FOLDER DESTINATION`: a study small enough to commit.

Takes its records and its predictions, logits in half precision, and builds the report from those, so that everybody who
has the destination can rebuild every table. Ray's logs, checkpoints and weights stay behind. Done again while a study
goes on, it adds what has come since.
"""

import argparse
import sys
from pathlib import Path

from ensgap.errors import UserError
from ensgap.folder import StudyFolder
from ensgap.predictions import Predictions
from ensgap.report import write_report
from ensgap.secrets import mask
from ensgap.storage import Place, open_place, write_whole


def publish(source: Place, destination: Path) -> StudyFolder:
    """The published study; its report is written."""
    found, published = StudyFolder.of(source), StudyFolder(destination)
    study = found.read_study()
    if published.exists() and _what(published.read_study()) != _what(study):
        raise UserError(f"{destination} holds another study; choose another destination, or delete it.")
    published.write_study(study | {"config": study["config"] | {"out": destination.as_posix()}})
    records: list[Place] = [*found.trials.glob("*/trial.json")]
    for record in sorted(records, key=str):
        _copy_trial(record.parent, published.trials / record.parent.name)
    write_report(published)
    return published


def _what(study: dict[str, dict[str, object]]) -> list[object]:
    return [study["config"][name] for name in ("study", "task", "members", "seed", "train_fraction")]


def _copy_trial(source: Place, destination: Place) -> None:
    """The record last, so that a trial which has one is complete."""
    record = (source / "trial.json").read_bytes()
    if (destination / "trial.json").exists() and (destination / "trial.json").read_bytes() == record:
        return
    files: list[Place] = [*source.glob("*.npz")]
    for file in files:
        Predictions.load(file).save(destination / file.name, half=True)
    write_whole(destination / "trial.json", record)


def size_of(folder: Path) -> int:
    """Bytes of all files below."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m ensgap.publish", description=__doc__)
    parser.add_argument("folder", help="a study's folder, or its address in a bucket")
    parser.add_argument("destination", type=Path, help="such as reports/published/nci1-weight-decay")
    arguments = parser.parse_args()
    try:
        publish(open_place(arguments.folder), arguments.destination)
    except UserError as error:
        print(f"ensgap.publish: {mask(str(error))}", file=sys.stderr)
        sys.exit(2)
    print(f"Published {arguments.destination / 'report.html'}, {size_of(arguments.destination) / 1e6:.1f} MB in all")

"""`python -m ensgap.report FOLDER`: rebuild a study's report from its saved predictions, without training."""

import argparse
import sys
from pathlib import Path

import torch

from ensgap.errors import UserError
from ensgap.folder import StudyFolder
from ensgap.report import write_report
from ensgap.secrets import mask
from ensgap.storage import open_place

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m ensgap.report", description=__doc__)
    parser.add_argument("folder", help="a study's folder, such as reports/weight_decay-digits or s3://bucket/path")
    parser.add_argument("--out", type=Path, help="where to write the report (default: the folder)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # small computations, which several threads only slow down
    try:
        place = open_place(arguments.folder)
        out = arguments.out or (None if isinstance(place, Path) else Path("reports") / place.name)
        folder = StudyFolder.of(place, out=out)
        write_report(folder)
    except UserError as error:
        print(f"ensgap.report: {mask(str(error))}", file=sys.stderr)
        sys.exit(2)
    print(f"Rebuilt {folder.report / 'report.html'}")

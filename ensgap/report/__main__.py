"""`python -m ensgap.report FOLDER`: rebuild a study's report from its saved predictions, without training."""

import argparse
import sys
from pathlib import Path

from ensgap.errors import UserError
from ensgap.folder import StudyFolder
from ensgap.report import write_report

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m ensgap.report", description=__doc__)
    parser.add_argument("folder", type=Path, help="a study's folder, such as reports/weight_decay-digits")
    folder = parser.parse_args().folder
    try:
        write_report(StudyFolder.of(folder))
    except UserError as error:
        print(f"ensgap.report: {error}", file=sys.stderr)
        sys.exit(2)
    print(f"Rebuilt {folder / 'report.html'}")

"""`python -m ensgap.findings reports`: write reports/README.md from the studies in reports/published."""

import argparse
import sys
from pathlib import Path

import torch

from ensgap.errors import UserError
from ensgap.findings.page import write_page

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m ensgap.findings", description=__doc__)
    parser.add_argument("reports", type=Path, help="the folder that holds published/")
    torch.set_num_threads(1)  # small computations, which several threads only slow down
    try:
        print(f"Wrote {write_page(parser.parse_args().reports)}")
    except UserError as error:
        print(f"ensgap.findings: {error}", file=sys.stderr)
        sys.exit(2)

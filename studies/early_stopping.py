"""Early stopping: each member for itself, all at one epoch, or when the ensemble is best.

python studies/early_stopping.py --task digits
"""

from ensgap.cli import main
from ensgap.plans.design_config import EarlyStoppingConfig
from ensgap.search.design import run

if __name__ == "__main__":
    main(EarlyStoppingConfig, run)

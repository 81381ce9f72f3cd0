"""BatchEnsemble: how its fast weights start, and whether a member's own holdout can be trusted.

python studies/batch_ensemble.py --task digits
"""

from ensgap.cli import main
from ensgap.plans.design_config import BatchEnsembleConfig
from ensgap.search.design import run

if __name__ == "__main__":
    main(BatchEnsembleConfig, run)

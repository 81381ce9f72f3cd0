"""Weight decay: the best value for the average member, the best for the ensemble, and the gap between them.

python studies/weight_decay.py --task digits
"""

from ensgap.cli import main
from ensgap.plans.weight_decay import WeightDecayConfig
from ensgap.search.weight_decay import run

if __name__ == "__main__":
    main(WeightDecayConfig, run)

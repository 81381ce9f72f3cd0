"""Temperature: one per member, one for the ensemble, or one for the pooled prediction; what each does on test data.

python studies/temperature.py --task digits
"""

from ensgap.cli import main
from ensgap.plans.design_config import TemperatureConfig
from ensgap.search.design import run

if __name__ == "__main__":
    main(TemperatureConfig, run)

"""The setting that is best for one network, the one that is best for the ensemble, and what the wrong one costs."""

__version__ = "0.1.0"

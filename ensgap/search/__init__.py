"""The search: Ray Tune drives the training of trials; finished ones are kept in the study's folder."""

import os
import sys

# Ray reads these when it is imported, so they stand before everything else in this package.
os.environ.setdefault("RAY_ENABLE_ZERO_COPY_TORCH_TENSORS", "1")  # workers read the data where the object store has it
os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("TUNE_PRINT_ALL_TRIAL_ERRORS", "0")  # a line says why a trial failed, error.txt has the rest
os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")  # Ctrl-C reaches the study, which says how to resume
if "ray" not in sys.modules:  # a Ray that was imported before does not notice, and would not get into its own cluster
    os.environ.setdefault("RAY_AUTH_MODE", "token")  # nobody gets in without one, wherever we start or join a Ray

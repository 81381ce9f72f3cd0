"""Speed, as ratios of two things measured in turn in one run: `python -m ensgap.bench`."""

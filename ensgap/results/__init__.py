"""A study's figures, recomputed from the predictions in its folder: the left end of everything a report shows."""

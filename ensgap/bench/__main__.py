"""`make bench`: training epochs of a stack against the same epochs in a plain loop, on one thread, in turn."""

"""The loop of a run: trials on slots until nothing is left, and what is kept of them on the way."""

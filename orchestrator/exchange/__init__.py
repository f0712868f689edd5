"""Results beside those of one run: two runs compared, results exported, results of other clients read."""

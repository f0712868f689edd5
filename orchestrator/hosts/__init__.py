"""The hosts of a cluster: which there are, which can be compared, which come and go."""

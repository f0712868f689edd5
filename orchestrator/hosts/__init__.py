"""The hosts of a cluster: which there are, which can be compared, what is wrong with them, what is left on them."""

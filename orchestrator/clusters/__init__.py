"""Ray clusters as such: how they are joined, and the files that describe them."""

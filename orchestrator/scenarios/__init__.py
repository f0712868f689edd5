"""One question to a cluster: the keys of a scenario file, how it is read, and what contradicts what."""

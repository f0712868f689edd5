"""The orphan guard: no server outlives those who started it."""

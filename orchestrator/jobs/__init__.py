"""Runs as jobs of a cluster: sent, followed, stopped and fetched."""

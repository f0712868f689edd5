"""Metrics of one point, from its requests, and whether they may be used."""

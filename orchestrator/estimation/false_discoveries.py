"""Many tests at once: which of their p are small enough. Pure; scipy.stats has the same and takes long to import."""

from __future__ import annotations

from collections.abc import Sequence


def false_discoveries(p: Sequence[float]) -> list[float]:
    """q of each p: the least share of false discoveries at which it is one (Benjamini and Hochberg 1995)."""
    if not all(0 <= one <= 1 for one in p):
        raise ValueError("a p that is no probability")
    order = sorted(range(len(p)), key=lambda i: p[i], reverse=True)
    q, least = [0.0] * len(p), 1.0
    for behind, i in enumerate(order):
        least = min(least, p[i] * (len(p) / (len(p) - behind)))
        q[i] = least
    return q

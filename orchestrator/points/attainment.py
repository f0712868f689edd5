"""How sure a share of good requests is: requests that follow each other are alike, so fewer of them count. Pure."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np


def independent_count(good: Any) -> float | None:
    """How many independent requests say as much as these booleans in the order of sending: n / (1 + 2 sum of rho_k).

    rho_k are their autocorrelations, summed in pairs up to the first pair below 0 (Geyer 1992, initial positive
    sequence). n where all are alike; None without requests.
    """
    n = len(good)
    if n == 0:
        return None
    values = np.asarray(good, dtype=np.float64) - float(np.mean(good))
    power = float(values @ values)
    if power == 0 or n < 4:
        return float(n)
    padded = np.fft.rfft(values, 2 * n)
    rho = np.fft.irfft(padded * np.conj(padded))[:n] / power
    pairs = rho[1 : n - (n - 1) % 2].reshape(-1, 2).sum(axis=1)
    stop = np.flatnonzero(pairs <= 0)
    total = float(pairs[: stop[0] if len(stop) else len(pairs)].sum())
    return float(n / max(1.0, 1 + 2 * total))


def wilson(share: float, n: float, level: float = 0.95) -> tuple[float, float]:
    """Two-sided interval of a share of `n` independent requests, n above 0 (Wilson 1927)."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    scale = 1 + z * z / n
    middle = (share + z * z / (2 * n)) / scale
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / scale
    return (max(0.0, middle - half) if share else 0.0), (min(1.0, middle + half) if share < 1 else 1.0)

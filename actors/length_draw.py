"""Drawing a number from a `Draw`. Pure."""

from __future__ import annotations

import math
import random

from orchestrator.traffic import Draw


def draw(spec: Draw, rng: random.Random) -> float:
    """One number, clipped to `low` and `high`; whoever wants a whole one rounds it."""
    value = _unclipped(spec, rng)
    return min(max(value, spec.low), math.inf if spec.high is None else spec.high)


def _unclipped(spec: Draw, rng: random.Random) -> float:
    if spec.kind == "normal":
        return rng.gauss(spec.mean, spec.std)
    if spec.kind == "lognormal":
        square = math.log(1 + (spec.std / spec.mean) ** 2)
        return rng.lognormvariate(math.log(spec.mean) - square / 2, math.sqrt(square))
    if spec.kind == "exponential":
        return rng.expovariate(1 / spec.mean) if spec.mean else 0.0
    if spec.kind == "uniform":
        return rng.uniform(spec.low, spec.low if spec.high is None else spec.high)
    if spec.kind == "histogram":
        values, weights = zip(*spec.bins, strict=True)
        return float(rng.choices(values, weights)[0])
    return spec.mean

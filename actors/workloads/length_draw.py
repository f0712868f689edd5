"""Drawn numbers: tokens of a prompt or an answer, turns of a session, seconds between turns. Pure."""

from __future__ import annotations

import math
import random

from orchestrator.traffic import Draw


def draw(spec: Draw, rng: random.Random) -> float:
    """One number, clipped to `low` and `high`; callers round it. The same for the same state of `rng`.

    `mean` and `std` are those of the numbers before they are clipped, for lognormal too. The spec has passed
    `draw_check.check_draw`.
    """
    drawn = max(_unclipped(spec, rng), spec.low)
    return drawn if spec.high is None else min(drawn, spec.high)


def _unclipped(spec: Draw, rng: random.Random) -> float:
    match spec.kind:
        case "normal":
            return rng.normalvariate(spec.mean, spec.std)
        case "lognormal":
            mu, sigma = log_parameters(spec.mean, spec.std)
            return rng.lognormvariate(mu, sigma)
        case "exponential":
            return rng.expovariate(1 / spec.mean)
        case "uniform":
            return rng.uniform(spec.low, spec.low if spec.high is None else spec.high)
        case "histogram":
            values, weights = zip(*spec.bins, strict=True)
            return float(rng.choices(values, weights)[0])
        case "fixed":
            return spec.mean


def log_parameters(mean: float, std: float) -> tuple[float, float]:
    """Mean and standard deviation of the logarithm of a lognormal number that itself has this mean and deviation."""
    variance = math.log1p((std / mean) ** 2)
    return math.log(mean) - variance / 2, math.sqrt(variance)

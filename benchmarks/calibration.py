"""Whether the stated probability of being best is how often it is true: simulated campaigns through the real ranking.

    python -m benchmarks.calibration [--campaigns 200] [--seed 1]

A campaign: 12 configs whose true speeds differ by `spread` (sd of logs), each measured on 2 or 3 of 4 hosts in random
order; hosts differ by 5 %, starts by 1.5 %, points by 2 %. For every config that can be best: what the ranking states,
and whether it is the best in truth.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from orchestrator.estimation.two_way import Floats
from orchestrator.objectives.aim import PointValue
from orchestrator.objectives.scenario_objective import Objective
from orchestrator.rankings.ranking import rank
from orchestrator.trial import LoadLevel

HOST_SPREAD, START_EFFECT, POINT_NOISE = 0.05, 0.015, 0.02
SPREADS = (0.003, 0.01, 0.03, 0.10)
CONFIGS, HOSTS = 12, 4
EDGES = (0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.95, 1.0)
METRIC = "output_throughput_tok_s"


@dataclass(frozen=True, slots=True)
class Statement:
    """One config in one campaign: the probability that the ranking states, and whether it was the best."""

    stated: float
    best: bool
    first: bool
    in_group: bool
    loss: float


@dataclass(frozen=True, slots=True)
class Bin:
    """Statements between two probabilities: how many, their mean, how often they were true."""

    low: float
    high: float
    count: int
    stated: float
    true: float


def campaign(rng: np.random.Generator, truth: Floats, trials: int) -> list[Statement]:
    """What the ranking states of each config of one campaign."""
    hosts = rng.normal(0, HOST_SPREAD, HOSTS)
    noise = math.hypot(START_EFFECT, POINT_NOISE)
    points = [
        PointValue(
            f"c{config}",
            "w",
            LoadLevel("concurrency", 1.0),
            repeat,
            {METRIC: math.exp(truth[config] + hosts[host] + rng.normal(0, noise))},
            trial_id=f"c{config}-r{repeat}",
            host=f"h{host}",
        )
        for config in range(CONFIGS)
        for repeat, host in enumerate(rng.permutation(HOSTS)[:trials])
    ]
    objective = Objective.model_validate({"name": "o", "maximize": METRIC, "at": {"concurrency": 1}, "near_tie": 0})
    ranking = rank(objective, {f"c{i}": {"page_size": i} for i in range(CONFIGS)}, points, workload="w")
    best = int(np.argmax(truth))
    return [
        Statement(
            row.p_best,
            row.config_id == f"c{best}",
            row is ranking.rows[0],
            row.told_apart is not True,
            1 - math.exp(truth[int(row.config_id[1:])] - truth[best]),
        )
        for row in ranking.rows
        if row.p_best is not None
    ]


def campaigns(count: int, seed: int, spreads: Sequence[float] = SPREADS) -> list[Statement]:
    """The statements of so many campaigns, spreads and numbers of trials in turn."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(count):
        truth = rng.normal(5, spreads[i % len(spreads)], CONFIGS)
        found += campaign(rng, truth, 2 + i // len(spreads) % 2)
    return found


def reliability(statements: Iterable[Statement]) -> list[Bin]:
    """The reliability table; statements of less than 1 in 1,000 are left out: nobody doubts them."""
    told = [s for s in statements if s.stated >= 0.001]
    found = []
    for low, high in pairwise(EDGES):
        inside = [s for s in told if low <= s.stated < high or s.stated == high == 1.0]
        if inside:
            stated, true = (float(np.mean([getattr(s, name) for s in inside])) for name in ("stated", "best"))
            found.append(Bin(low, high, len(inside), stated, true))
    return found


def brier(statements: Sequence[Statement]) -> float:
    """Mean square of (stated - true), over all configs (Brier 1950)."""
    return float(np.mean([(s.stated - s.best) ** 2 for s in statements]))


def calibration_error(bins: Sequence[Bin]) -> float:
    """Mean distance of stated and true over the bins, by their numbers (expected calibration error)."""
    return sum(b.count * abs(b.stated - b.true) for b in bins) / sum(b.count for b in bins)


def report(statements: Sequence[Statement]) -> list[str]:
    """Markdown lines."""
    bins = reliability(statements)
    lines = ["| stated P(best) | statements | mean stated | true |", "|---|---|---|---|"]
    lines += [f"| {b.low:g} to {b.high:g} | {b.count} | {b.stated:.3f} | {b.true:.3f} |" for b in bins]
    first = [s for s in statements if s.first]
    lines += [
        "",
        f"Brier score {brier(statements):.4f}; expected calibration error {calibration_error(bins):.3f}.",
        f"First row: stated {np.mean([s.stated for s in first]):.3f}, "
        f"the best in {np.mean([s.best for s in first]):.3f} of {len(first)} campaigns, "
        f"mean loss {np.mean([s.loss for s in first]):.2%}. "
        f"True best among those not told apart: {np.mean([s.in_group for s in statements if s.best]):.3f}.",
    ]
    return lines


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--campaigns", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    sys.stdout.write("\n".join(report(campaigns(given.campaigns, given.seed))) + "\n")
    for spread in SPREADS:
        told = report(campaigns(given.campaigns, given.seed, (spread,)))
        sys.stdout.write(f"\nTrue speeds differ by {spread:.1%} (sd):\n" + "\n".join(told) + "\n")


if __name__ == "__main__":
    main()

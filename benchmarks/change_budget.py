"""How often `--fail-on-change` is wrong where nothing ever changed: quarters of 90 nights, looked at after every night.

    python -m benchmarks.change_budget --series 1 8 50 --worlds 400 50 8 [--floor 0.03]

The product's own change points, on independent values of Student's t with 5 degrees of freedom and an sd of 1.3 %,
without a floor unless one is given: a change that chance alone brings seldom reaches it. Alarms of a series less than 7
nights apart are one.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

import click
import numpy as np

from orchestrator.history.change_points import ChangeRules
from orchestrator.history.history_changes import changes
from orchestrator.history.history_lines import RECENT_NIGHTS

NIGHTS = 90


def false_alarms(series: int, seed: int, floor: float) -> int:
    """Of one quarter, over all series; a change is an alarm if it is sure, worse, and among the last nights."""
    rng = np.random.default_rng((seed, series))
    values = rng.standard_t(5, (series, NIGHTS)) * 0.01
    rules = ChangeRules(floor=floor)
    told = dict.fromkeys(range(series), -NIGHTS)
    alarms = 0
    for night in range(2 * rules.least, NIGHTS + 1):
        found = changes({f"{seed} {i}": list(values[i, :night]) for i in range(series)}, rules)
        for i in range(series):
            own = found[f"{seed} {i}"]
            if any(c.sure and c.point.difference < 0 and c.point.index >= night - RECENT_NIGHTS for c in own):
                alarms += night - told[i] >= RECENT_NIGHTS
                told[i] = night
    return alarms


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, nargs="+", default=[1, 8, 50])
    parser.add_argument("--worlds", type=int, nargs="+", default=[400, 50, 8])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--floor", type=float, default=0.0)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args(given)
    with ProcessPoolExecutor(options.processes) as pool:
        for series, worlds in zip(options.series, options.worlds, strict=True):
            seeds = range(options.seed, options.seed + worlds)
            alarms = sum(pool.map(false_alarms, [series] * worlds, seeds, [options.floor] * worlds))
            quarters = series * worlds
            click.echo(f"{series} series: {alarms} alarms in {quarters} series-quarters, {alarms / quarters:.4f} each")


if __name__ == "__main__":
    main()

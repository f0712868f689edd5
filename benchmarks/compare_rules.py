"""How often `compare` is wrong, and what it finds: simulated runs of 6 configs at 3 load levels with 7 metrics each.

Hosts differ by 4 %, starts by 1.5 %, points of one start by 0.5 % (standard deviations). The second run is the first
one measured again, or one config of it is slower in everything but its accept length.

    python -m benchmarks.compare_rules [--comparisons 150]
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from orchestrator.exchange.compared_row import ComparedRow, Doubt, Standing
from orchestrator.exchange.compared_side import ComparedConfig, Side
from orchestrator.exchange.run_comparison import compare_sides
from orchestrator.objectives.aim import PointValue
from orchestrator.points.batch_means import WithinRun
from orchestrator.trial import LoadLevel

METRICS = ("output_throughput_tok_s", "ttft_p50_ms", "ttft_p95_ms", "tpot_p50_ms", "tpot_p95_ms", "e2e_p50_ms",
           "accept_length")  # fmt: skip
HOSTS, STARTS, POINTS = 0.04, 0.015, 0.005
CONFIGS, LEVELS = 6, (1, 16, 64)
SCENARIO: Mapping[str, Any] = {"workloads": [{"name": "chat"}]}


@dataclass(frozen=True, slots=True)
class Case:
    """`effect`: by how much one config is slower. `apart`: the second ran on other hosts. `heavy`: t with 3 df."""

    name: str
    repeats: int = 3
    hosts: int = 2
    effect: float = 0.0
    apart: bool = False
    heavy: bool = False


CASES = (
    Case("again"), Case("again, heavy tails", heavy=True), Case("again, 4 hosts", hosts=4),
    Case("again, one start each", repeats=1, hosts=1), Case("again, on other hosts", apart=True),
    Case("5 % slower", effect=0.05), Case("8 % slower", effect=0.08),
    Case("8 % slower, one start each", repeats=1, hosts=1, effect=0.08),
    Case("15 % slower, one start each", repeats=1, hosts=1, effect=0.15),
    Case("8 % slower, on other hosts", effect=0.08, apart=True),
    Case("25 % slower, on other hosts", effect=0.25, apart=True),
)  # fmt: skip


def side(name: str, case: Case, hosts: Mapping[str, float], effect: float, rng: np.random.Generator) -> Side:
    """A run with one value for each config, repeat, level and metric."""
    values = []
    for config in range(CONFIGS):
        for repeat in range(case.repeats):
            host = list(hosts)[(config + repeat) % len(hosts)]
            drawn = rng.standard_t(3) / math.sqrt(3) if case.heavy else rng.standard_normal()
            slower = hosts[host] + drawn * STARTS + (effect if config == 0 else 0.0)
            for level in LEVELS:
                metrics = {m: 100 * math.exp(_sign(m) * slower + rng.normal(0, POINTS)) for m in METRICS}
                known = {m: WithinRun(POINTS, 19) for m in METRICS if "p95" not in m}
                values.append(
                    PointValue(f"c{config}", "chat", LoadLevel("concurrency", level), repeat, metrics,
                               trial_id=f"c{config}-{repeat}", host=host, within_run=known)
                )  # fmt: skip
    configs = {f"c{i}": ComparedConfig(f"c{i}", f"c{i}", {}) for i in range(CONFIGS)}
    return Side(name, "sglang", False, False, configs, values, scenario=SCENARIO)


def _sign(metric: str) -> int:
    """How a slower server moves a metric."""
    return 0 if metric == "accept_length" else -1 if metric == "output_throughput_tok_s" else 1


def is_true(row: ComparedRow, effect: float) -> bool:
    return bool(effect) and row.config == "c0" and _sign(row.metric) != 0


def figures(case: Case, comparisons: int) -> str:
    """A line of the table."""
    rng = np.random.default_rng(1)
    wrong = false_rows = rows = found = real = 0
    for _ in range(comparisons):
        hosts = {f"h{i}": float(rng.normal(0, HOSTS)) for i in range(case.hosts)}
        others = {f"k{i}": float(rng.normal(0, HOSTS)) for i in range(case.hosts)} if case.apart else hosts
        first, second = side("a", case, hosts, 0.0, rng), side("b", case, others, case.effect, rng)
        told = compare_sides(first, second, METRICS, Doubt()).rows
        decided = [row for row in told if row.standing in {Standing.WORSE, Standing.BETTER}]
        right = [row for row in decided if is_true(row, case.effect) and row.standing is Standing.WORSE]
        wrong += len(decided) > len(right)
        false_rows += len(decided) - len(right)
        rows += len(told)
        found += len(right)
        real += sum(1 for row in told if is_true(row, case.effect))
    share = f"{found / real:.2f}" if real else "-"
    return f"| {case.name} | {wrong / comparisons:.3f} | {false_rows / rows:.4f} | {share} |"


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--comparisons", type=int, default=150)
    asked = arguments.parse_args()
    print("| second run | comparisons with a wrong verdict | wrong rows | slower rows found |\n|---|---|---|---|")  # noqa: T201
    for case in CASES:
        print(figures(case, asked.comparisons), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()

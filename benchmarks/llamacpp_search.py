"""A search on a real engine against the truth: what it picked, how far that is behind the best, what it cost.

    make demo-llamacpp                              # once: installs llama.cpp and the model
    python -m benchmarks.llamacpp_search [--dir FOLDER]

1. The truth: every config of `scenarios/llamacpp-search.yaml` in replicates, as benchmarks/llamacpp_truth.py does it
   (own servers, own client, blocks in random order). It is kept in FOLDER/truth.json and used again if it is there.
2. The run: `specsweep run` of the same scenario, which searches.
3. The pick, its regret by the truth, and the server-seconds of the search beside those of a grid that starts every
   config as often (by the mean cost of a trial, start and stop with it).

The machine must be quiet: about ten minutes for the truth, six for the search.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.llamacpp_truth import Cell, judge, label, measure_all, picks_of, say, standard_error
from orchestrator.paths import RunPaths
from orchestrator.run_files import dataset
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_file import load_scenario
from orchestrator.scenarios.sweep_space import expand

ROOT = Path(__file__).resolve().parent.parent
SCENARIO = Path("scenarios/llamacpp-search.yaml")
# Beside what the dataset tells: stopping a server and taking the next one.
BETWEEN_S = 2.0


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run took of its slots: starts and server-seconds."""

    starts: int
    seconds: float

    @classmethod
    def of(cls, root: Path) -> Cost:
        """From the rows of its trials and points."""
        paths = RunPaths(root)
        starts = [row["start_s"] or 0.0 for row in dataset.read_rows(paths, "trials")]
        loads = [json.loads(row["client_json"])["duration_s"] for row in dataset.read_rows(paths, "loads")]
        return cls(len(starts), sum(starts) + sum(loads) + BETWEEN_S * len(starts))

    def share_of_grid(self, configs: int, repeats: int) -> float:
        """Of the server-seconds of a grid, whose trials take as long on average: so of its starts."""
        return self.starts / (configs * repeats)


def truth(scenario: Scenario, file: Path, given: argparse.Namespace) -> dict[Cell, list[float]]:
    """Measured now, or read."""
    if not file.exists():
        configs = list(expand(scenario))[: given.configs]
        found = asyncio.run(measure_all(scenario, configs, given))
        cells = [{"cell": list(cell), "tok_s": speeds} for cell, speeds in found.items()]
        file.write_text(json.dumps(cells, indent=1) + "\n", encoding="utf-8")
    kept: dict[Cell, list[float]] = defaultdict(list)
    for entry in json.loads(file.read_text(encoding="utf-8")):
        config_id, workload, concurrency = entry["cell"]
        kept[config_id, workload, concurrency] = entry["tok_s"]
    return kept


def searched(scenario: Path, root: Path) -> float:
    """Run it; seconds."""
    began_s = time.monotonic()
    words = ["run", str(scenario), "--address", "local", "--run-dir", str(root)]
    done = subprocess.run([sys.executable, "-m", "orchestrator", *words], cwd=ROOT, check=False)
    if done.returncode:
        raise SystemExit(f"the run ended with exit code {done.returncode}")
    return time.monotonic() - began_s


def report(scenario: Scenario, found: dict[Cell, list[float]], root: Path, grid_repeats: int) -> dict[str, Any]:
    """Print what came out; the same as JSON values."""
    (objective,) = scenario.objectives
    configs = {config.config_id: label(config, scenario) for config in expand(scenario)}
    cells = {config_id: speeds for (config_id, *_), speeds in found.items()}
    pick = picks_of(root)[objective.name]
    judged = judge(objective, cells, pick)
    for config_id in sorted(cells, key=lambda c: -statistics.mean(cells[c])):
        speeds = cells[config_id]
        mark = "  <- pick" if config_id == pick else ""
        say(f"  {configs[config_id]:32} {statistics.mean(speeds):7.2f} +- {standard_error(speeds):.2f} tok/s{mark}")
    cost = Cost.of(root)
    share = cost.share_of_grid(len(configs), grid_repeats)
    regret = "" if judged.regret is None else f", {judged.regret:.1%} behind the best"
    say(f"pick: {judged.verdict}{regret}")
    say(f"search: {cost.starts} starts, {cost.seconds:.0f} server-seconds; a grid of {len(configs)} configs x "
        f"{grid_repeats} has {len(configs) * grid_repeats} starts: {share:.0%} of it")  # fmt: skip
    return {**vars(judged), "starts": cost.starts, "server_s": cost.seconds, "share_of_grid": share}


def main() -> None:
    """Truth, run, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", type=Path, default=SCENARIO)
    parser.add_argument("--dir", type=Path, default=Path("llamacpp-search"), help="truth.json, run/ and report.json")
    parser.add_argument("--replicates", type=int, default=3, help="of the truth")
    parser.add_argument("--duration", type=float, default=6.0, help="window of the truth in seconds")
    parser.add_argument("--warmup", type=float, default=2.0, help="seconds before it")
    parser.add_argument("--configs", type=int, help="the truth of the first N only, to try this program")
    parser.add_argument("--grid-repeats", type=int, default=3, help="starts of each config in the grid to compare with")
    parser.add_argument("--seed", default="truth")
    given = parser.parse_args()
    scenario = load_scenario(given.scenario)
    given.dir.mkdir(parents=True, exist_ok=True)
    found = truth(scenario, given.dir / "truth.json", given)
    root = given.dir.absolute() / "run"
    taken_s = searched(given.scenario.absolute(), root) if not root.exists() else None
    told = report(scenario, found, root, given.grid_repeats)
    (given.dir / "report.json").write_text(json.dumps({**told, "run_s": taken_s}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

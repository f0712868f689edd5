"""Is the sweep's pick on llama.cpp the best config? Every config measured many times, by a client of its own.

    make demo-llamacpp                                          # the sweep: note its run directory
    python -m benchmarks.llamacpp_truth RUN    # the truth, and what it says about the pick

Works for every scenario whose engine is a command template for llama.cpp (its chunks are needed to count) and whose
prompts have one length.

The configs and their command lines are those of the scenario; starting, loading and counting are done here, with other
means: servers are plain child processes, and each chunk says how many tokens there are by now (llama.cpp's
`timings_per_token`). Throughput of a cell = tokens that came within a fixed window in the middle of a steady closed
loop / window. Replicates are blocks: each starts every config once, in a new random order, so that a machine that
changes over time changes all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import os
import random
import statistics
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from actors.workloads.prompt_text import text_of
from benchmarks.kill_rig import free_port
from orchestrator.objectives.scenario_objective import Objective
from orchestrator.run_files.run_manifest import read_manifest
from orchestrator.scenarios.command_template import render
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_file import load_scenario
from orchestrator.scenarios.scenario_workload import Workload
from orchestrator.scenarios.sweep_space import expand
from orchestrator.trial import EngineConfig

SCENARIO = Path("scenarios/llamacpp-smollm2.yaml")
START_S = 60.0
# For the estimate: a start, and the answers that are under way when a window ends.
START_GUESS_S, DRAIN_GUESS_S = 4.0, 3.0
# SmolLM2's tokens are short in numbers; close enough, since all configs get the same prompts.
CHARACTERS = {"random_text": 4.5, "repetitive": 2.0}

Cell = tuple[str, str, int]  # config id, workload, concurrency


@dataclass
class Load:
    """One closed loop: token arrivals as (monotonic second, tokens)."""

    url: str
    workload: Workload
    seed: str
    stop: bool = False
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    async def one_after_another(self, worker: int, session: aiohttp.ClientSession) -> None:
        """Requests of one slot until `stop`."""
        for i in itertools.count():
            if self.stop:
                return
            await self._request(f"{self.seed}-{worker}-{i}", session)

    async def _request(self, salt: str, session: aiohttp.ClientSession) -> None:
        workload = self.workload
        assert isinstance(workload.input_tokens, int), "this benchmark sends prompts of one length"
        length = round(workload.input_tokens * CHARACTERS.get(workload.dataset, 4.0))
        body = {
            "model": "any", "prompt": f"{salt} {text_of(_kind(workload), length, salt)}", "stream": True,
            "max_tokens": workload.output_tokens, "temperature": 0, "ignore_eos": True, "timings_per_token": True,
            **workload.extra_body,
        }  # fmt: skip
        seen = 0
        async with session.post(f"{self.url}/v1/completions", json=body) as answer:
            if answer.status != 200:
                self.failed.append((await answer.text())[:200])
                return
            async for line in answer.content:
                now = time.monotonic()
                if line.startswith(b"data: {"):
                    count = json.loads(line[6:]).get("timings", {}).get("predicted_n", seen)
                    if count > seen:
                        self.arrivals.append((now, count - seen))
                        seen = count
        if seen != workload.output_tokens:
            self.failed.append(f"{seen} tokens instead of {workload.output_tokens}")


def _kind(workload: Workload) -> str:
    return workload.dataset if workload.dataset in CHARACTERS else "random_text"


async def throughput(url: str, workload: Workload, concurrency: int, seed: str, times: argparse.Namespace) -> float:
    """Tokens per second at a level, once the loop is steady; RuntimeError if a request fails."""
    load = Load(url, workload, seed)
    timeout = aiohttp.ClientTimeout(total=300)
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session, asyncio.TaskGroup() as group:
        for worker in range(concurrency):
            group.create_task(load.one_after_another(worker, session))
        await asyncio.sleep(times.warmup)
        begin = time.monotonic()
        await asyncio.sleep(times.duration)
        end = time.monotonic()
        load.stop = True
    if load.failed:
        raise RuntimeError(f"{workload.name} C={concurrency}: {load.failed[0]}")
    return sum(tokens for at, tokens in load.arrivals if begin <= at < end) / (end - begin)


async def measure_config(
    scenario: Scenario, config: EngineConfig, replicate: int, times: argparse.Namespace
) -> dict[Cell, float]:
    """One server, all its cells in a random order."""
    port = free_port()
    words = render(scenario.engine, scenario.model, config.as_dict())
    argv = [word.replace("{host}", "127.0.0.1").replace("{port}", str(port)) for word in words]
    env = {**os.environ, **scenario.engine.env}
    server = await asyncio.create_subprocess_exec(
        *argv, env=env, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        url = f"http://127.0.0.1:{port}"
        await _until_ready(url + scenario.engine.ready, server)
        cells = [(w, c) for w in scenario.workloads for c in w.concurrency]
        random.Random(f"{times.seed}-{replicate}-{config.config_id}").shuffle(cells)
        found = {}
        for workload, concurrency in cells:
            seed = f"{times.seed}-{replicate}-{workload.name}-{concurrency}"  # the same prompts for every config
            speed = await throughput(url, workload, concurrency, seed, times)
            found[(config.config_id, workload.name, concurrency)] = speed
        return found
    finally:
        server.terminate()
        await server.wait()


async def _until_ready(url: str, server: asyncio.subprocess.Process) -> None:
    deadline = time.monotonic() + START_S
    async with aiohttp.ClientSession() as session:
        while time.monotonic() < deadline and server.returncode is None:
            try:
                async with session.get(url) as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)
    raise RuntimeError(f"the server did not get ready (exit code {server.returncode})")


@dataclass(frozen=True)
class Judged:
    """What the truth says about a pick. `regret`: how far it is behind the best, as a share of it."""

    objective: str
    best: str
    pick: str | None
    regret: float | None
    verdict: str


def standard_error(values: list[float]) -> float:
    """Of the mean; infinite where one value tells nothing about noise."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf


def judge(objective: Objective, cells: dict[str, list[float]], pick: str | None) -> Judged:
    """`best`, `tie` (less behind the best than two standard errors of the difference, or than near_tie) or `worse`."""
    best = max(cells, key=lambda c: statistics.mean(cells[c]))
    if pick is None or pick not in cells:
        return Judged(objective.name, best, pick, None, "no pick")
    top, mine = statistics.mean(cells[best]), statistics.mean(cells[pick])
    noise = 2 * math.hypot(standard_error(cells[best]), standard_error(cells[pick]))
    close = top - mine <= max(noise, objective.near_tie * top)
    return Judged(objective.name, best, pick, 1 - mine / top, "best" if pick == best else "tie" if close else "worse")


def picks_of(run: Path) -> dict[str, str | None]:
    """Objective -> config that the sweep ranked first."""
    ranked = json.loads((run / "ranking.json").read_text(encoding="utf-8"))["objectives"]
    rows = {name: found["ranking"] for name, found in ranked.items()}
    return {name: r[0]["config_id"] if r and r[0]["value"] is not None else None for name, r in rows.items()}


async def measure_all(
    scenario: Scenario, configs: list[EngineConfig], times: argparse.Namespace
) -> dict[Cell, list[float]]:
    found: dict[Cell, list[float]] = defaultdict(list)
    began = time.monotonic()
    for replicate in range(times.replicates):
        order = list(configs)
        random.Random(f"{times.seed}-{replicate}").shuffle(order)
        for config in order:
            for cell, speed in (await measure_config(scenario, config, replicate, times)).items():
                found[cell].append(speed)
        say(f"replicate {replicate + 1} of {times.replicates} after {(time.monotonic() - began) / 60:.1f} min")
    return found


def expected_s(scenario: Scenario, configs: int, times: argparse.Namespace) -> float:
    """Rough; a busy machine takes longer."""
    cells = sum(len(w.concurrency) for w in scenario.workloads)
    return float(times.replicates * configs * (START_GUESS_S + cells * (times.warmup + times.duration + DRAIN_GUESS_S)))


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def label(config: EngineConfig, scenario: Scenario) -> str:
    own = {k: v for k, v in config.as_dict().items() if v and k not in scenario.engine.settings}
    return ", ".join(f"{name}={value}" for name, value in own.items()) or "no drafting"


def report(
    scenario: Scenario, labels: dict[str, str], found: dict[Cell, list[float]], picks: dict[str, str | None]
) -> Any:
    """Print the tables; the same as JSON values."""
    judged = []
    for objective in scenario.objectives:
        level = objective.at.concurrency
        cells = {c: v for (c, name, at), v in found.items() if name == objective.workload and at == level}
        verdict = judge(objective, cells, picks.get(objective.name))
        judged.append(verdict)
        say(f"\n{objective.name}: tok/s at C={level} ({objective.workload})")
        for config in sorted(cells, key=lambda c: -statistics.mean(cells[c])):
            values = cells[config]
            mark = "  <- pick of the sweep" if config == verdict.pick else ""
            spread = f"{min(values):.1f} to {max(values):.1f}"
            say(f"  {labels[config]:24} {statistics.mean(values):7.2f}  ({spread}, n={len(values)}){mark}")
        behind = "" if verdict.regret is None else f", {verdict.regret:.1%} behind the best"
        say(f"  pick: {verdict.verdict}{behind}")
    return [vars(v) for v in judged]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path, nargs="?", help="run directory of the sweep, for its picks and scenario")
    parser.add_argument("--scenario", type=Path, default=SCENARIO, help="where no run is given")
    parser.add_argument("--replicates", type=int, default=4)
    parser.add_argument("--duration", type=float, default=20.0, help="window in seconds, several requests long")
    parser.add_argument("--warmup", type=float, default=5.0, help="seconds before it")
    parser.add_argument("--configs", type=int, help="only the first N, to try this program")
    parser.add_argument("--seed", default="truth")
    parser.add_argument("--out", type=Path, help="write everything as JSON")
    given = parser.parse_args()
    scenario = (
        Scenario.model_validate(read_manifest(given.run)["scenario"]) if given.run else load_scenario(given.scenario)
    )
    configs = list(expand(scenario))[: given.configs]
    say(f"{len(configs)} configs x {given.replicates} replicates: about "
        f"{expected_s(scenario, len(configs), given) / 60:.0f} min on an idle machine")  # fmt: skip
    found = asyncio.run(measure_all(scenario, configs, given))
    labels = {c.config_id: label(c, scenario) for c in configs}
    judged = report(scenario, labels, found, picks_of(given.run) if given.run else {})
    if given.out:
        cells = [{"config": labels[c], "config_id": c, "workload": w, "concurrency": n, "tok_s": v}
                 for (c, w, n), v in found.items()]  # fmt: skip
        given.out.write_text(json.dumps({"cells": cells, "objectives": judged}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

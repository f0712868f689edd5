"""What a load client costs and how true its clock is: the floor, ours and every installed peer, on one server.

CPU is that of the whole process tree, marginal: a run with many tokens minus a run with almost none, so that start-up
cancels. Paced: 64 streams at 50 tokens/s; flat out: as fast as the client reads. TTFT error: what the client says minus
what the server knows, at half that load. The ladder: so many streams open at once, a token a second each, none failed.
Everything measured is kept in `--out`; `--resume` measures only what is missing there.

    python -m benchmarks.client_cost --quick
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_rig import BenchServer, Cores, adopt_orphans
from benchmarks.client_runs import RAW, Client, ClientRuns, clients
from benchmarks.cost_table import cost_table
from benchmarks.peers.work import Work
from benchmarks.stream_script import Script

STREAMS, TOKENS = 64, 128
PACED, FLAT = Script(ttft_ms=100.0, rate=50.0), Script(flat=True)
SLOW = Script(ttft_ms=1000.0, rate=1.0)
LADDER_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured: times all streams are filled (paced, flat, TTFT), repeats of the floor and ours, rungs."""

    paced: int
    flat: int
    ttft: int
    peer_paced: int
    peer_flat: int
    peer_ttft: int
    repeats: int
    rungs: tuple[int, ...]
    peer_rungs: tuple[int, ...]
    budget_s: float


FULL = Plan(6, 40, 12, 6, 12, 3, 3, (1000, 2500, 5000, 10_000), (1000, 2500, 5000, 10_000), 1170.0)
QUICK = Plan(3, 20, 6, 3, 0, 0, 2, (1000, 5000), (), 225.0)


class Book:
    """Cells measured so far, by client and name; kept in a file after each."""

    def __init__(self, path: Path, resume: bool) -> None:
        self._path = path
        self.cells: dict[str, dict[str, Any]] = {}
        if resume and path.exists():
            self.cells = json.loads(path.read_text(encoding="utf-8"))["cells"]

    def has(self, client: Client, cell: str) -> bool:
        """A cell whose run broke or was stopped is measured once more by `--resume`."""
        found = self.cells.get(client.name, {}).get(cell)
        return found is not None and not found.get("trouble")

    def put(self, client: Client, cell: str, value: dict[str, Any]) -> None:
        self.cells.setdefault(client.name, {})[cell] = value
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps({"cells": self.cells}, indent=1), encoding="utf-8")
        print(f"{client.name:15s} {cell:14s} {json.dumps(value)[:150]}", flush=True)  # noqa: T201


class Bench:
    """Measures cell by cell until all is there or the time is up."""

    def __init__(self, runs: ClientRuns, book: Book, plan: Plan, deadline: float) -> None:
        self._runs, self._book, self._plan, self._deadline = runs, book, plan, deadline

    def _cell(self, client: Client, cell: str, measure: Callable[[], dict[str, Any]]) -> None:
        if client.missing or self._book.has(client, cell) or time.monotonic() > self._deadline - 5:
            return
        self._book.put(client, cell, measure())

    def measure(self, all_clients: Sequence[Client]) -> None:
        """The floor and ours in turns, so that a change of the machine's speed meets both; then the peers."""
        plan = self._plan
        own = [client for client in all_clients if client.peer is None]
        peers = [client for client in all_clients if client.peer is not None]
        for repeat in range(plan.repeats):
            for client in own:
                self._cost(client, repeat, plan.paced, plan.flat)
        for client in own:
            self._cell(client, "ttft", partial(self._ttft, client, plan.ttft))
        for client in own:
            self._climb(client, plan.rungs[-1:] if client.name == RAW else plan.rungs)
        for client in peers:
            self._cost(client, 0, plan.peer_paced, plan.peer_flat)
            if plan.peer_ttft:
                self._cell(client, "ttft", partial(self._ttft, client, plan.peer_ttft))
        for rung in plan.peer_rungs:
            for client in peers:
                if all(self._passed(client, lower) for lower in plan.peer_rungs if lower < rung):
                    self._climb(client, (rung,))

    def _cost(self, client: Client, repeat: int, paced: int, flat: int) -> None:
        for name, script, rounds, tokens in (
            ("base", FLAT, 1, 2),
            ("paced", PACED, paced, TOKENS),
            ("flat", FLAT, flat, TOKENS),
        ):
            if rounds:
                cell = f"{name} {repeat}"
                self._cell(client, cell, partial(self._cpu, client, script, rounds, tokens))

    def _cpu(self, client: Client, script: Script, rounds: int, tokens: int) -> dict[str, Any]:
        outcome = self._runs.run(client, script, _work(STREAMS, STREAMS * rounds, tokens))
        value = {
            "cpu_s": round(outcome.child.cpu_s, 4),
            "wall_s": round(outcome.child.wall_s, 2),
            "tokens": outcome.truth["tokens"],
            "requests": outcome.truth["issued"],
            "peak_open": outcome.truth["peak_open"],
            "server_late_ms": outcome.truth["late_ns"] / 1e6,
        }
        if outcome.trouble:
            value["trouble"] = outcome.trouble
        elif script.flat is False and outcome.reading is not None:
            value["ttft"] = _spread(*outcome.ttft_errors_ms())
        return value

    def _ttft(self, client: Client, rounds: int) -> dict[str, Any]:
        outcome = self._runs.run(client, PACED, _work(STREAMS // 2, STREAMS // 2 * rounds, 32))
        return {"trouble": outcome.trouble} if outcome.trouble else _spread(*outcome.ttft_errors_ms())

    def _climb(self, client: Client, rungs: Sequence[int]) -> None:
        for rung in rungs:
            self._cell(client, f"ladder {rung}", partial(self._rung, client, rung))
            if not self._passed(client, rung):
                return

    def _passed(self, client: Client, rung: int) -> bool:
        return bool(self._book.cells.get(client.name, {}).get(f"ladder {rung}", {}).get("ok"))

    def _rung(self, client: Client, streams: int) -> dict[str, Any]:
        outcome = self._runs.run(client, SLOW, _work(streams, streams, LADDER_TOKENS, 16), 60.0 + streams / 100)
        reading, peak = outcome.reading, outcome.truth["peak_open"]
        if reading is None:
            return {"ok": False, "peak_open": peak, "trouble": outcome.trouble}
        ok = reading.completed == streams and not reading.failed and peak >= 0.95 * streams
        return {
            "ok": ok,
            "completed": reading.completed,
            "failed": reading.failed,
            "peak_open": peak,
            "wall_s": round(outcome.child.wall_s, 1),
            "cpu_s": round(outcome.child.cpu_s, 2),
            "server_late_ms": outcome.truth["late_ns"] / 1e6,
        }


def _work(streams: int, requests: int, tokens: int, input_tokens: int = 128) -> Work:
    return Work("", "completions", streams, requests, tokens, Path(), input_tokens)


def _spread(errors: Sequence[float], paired: str) -> dict[str, Any]:
    if not len(errors):
        return {"trouble": paired}
    p50, p99 = np.percentile(errors, (50, 99))
    return {"p50_ms": round(float(p50), 3), "p99_ms": round(float(p99), 3), "n": len(errors), "paired": paired}


def main() -> None:
    """Measure, print the table."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument(
        "--quick", action="store_true", help="below 4 minutes: peers only paced, as far as the time goes"
    )
    arguments.add_argument("--only", action="append", default=[], metavar="NAME", help="this client and the floor")
    arguments.add_argument("--skip-peers", action="store_true")
    arguments.add_argument("--budget-s", type=float, help="end after so many seconds with what there is")
    arguments.add_argument("--out", type=Path, default=Path("runs/client_cost.json"))
    arguments.add_argument("--resume", action="store_true", help="measure only what is missing in --out")
    asked = arguments.parse_args()
    plan = QUICK if asked.quick else FULL
    deadline = time.monotonic() + (asked.budget_s or plan.budget_s)
    adopt_orphans()
    before = _load()
    cores, book = Cores.split(), Book(asked.out, asked.resume)
    chosen = clients(asked.only, peers=not asked.skip_peers)
    with BenchServer(cores) as server:
        runs = ClientRuns(server, cores, lambda: deadline - time.monotonic())
        Bench(runs, book, plan, deadline).measure(chosen)
    print(f"\n{cores}; load of the machine {before} before, {_load()} after\n\n{cost_table(chosen, book.cells)}")  # noqa: T201


def _load() -> str:
    return Path("/proc/loadavg").read_text(encoding="utf-8").split()[0]


if __name__ == "__main__":
    main()

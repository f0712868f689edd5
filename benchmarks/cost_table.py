"""The cells of `client_cost` as a table: pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.client_runs import RAW, TIME_UP, Client

Cells = Mapping[str, Mapping[str, Any]]


def marginal(cells: Mapping[str, Any], kind: str) -> list[float]:
    """CPU-seconds per 100,000 streamed tokens beyond start-up, one a repeat."""
    found = []
    for repeat in range(10):
        base, run = cells.get(f"base {repeat}"), cells.get(f"{kind} {repeat}")
        if base and run and not base.get("trouble") and not run.get("trouble"):
            found.append((run["cpu_s"] - base["cpu_s"]) / (run["tokens"] - base["tokens"]) * 1e5)
    return found


def cost_table(clients: Sequence[Client], cells: Cells) -> str:
    """One row a client. Ratios are to the floor in the same run."""
    heads = (
        "client",
        "start-up, CPU-s",
        "paced, CPU-s per 100k tokens",
        "x floor",
        "flat out, CPU-s per 100k tokens",
        "x floor",
        "TTFT error ms, p50 / p99",
        "most streams without a false failure",
    )
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    floor = {kind: _median(marginal(cells.get(RAW, {}), kind)) for kind in ("paced", "flat")}
    notes = []
    for client in clients:
        name = f"{client.name} {client.version}".strip()
        own = cells.get(client.name, {})
        if client.missing:
            lines.append(f"| {name} | {client.missing} | | | | | | |")
            continue
        paced, flat = (_cost(own, kind, floor[kind]) for kind in ("paced", "flat"))
        lines.append(f"| {name} | {_start(own)} | {paced} | {flat} | {_ttft(own)} | {_ladder(own)} |")
        notes += [
            f"{name}, {cell}: {value['trouble']}"
            for cell, value in own.items()
            if isinstance(value, dict) and value.get("trouble")
        ]
    late = max(
        (v["server_late_ms"] for own in cells.values() for c, v in own.items() if c.startswith("paced")), default=0
    )
    notes.insert(0, f"The server wrote frames at most {late:.0f} ms late (paced); a quiet machine has a few.")
    return "\n".join([*lines, "", *notes])


def _start(cells: Mapping[str, Any]) -> str:
    """CPU of a run with next to no tokens."""
    found = [value["cpu_s"] for cell, value in cells.items() if cell.startswith("base") and not value.get("trouble")]
    return f"{statistics.median(found):.1f}" if found else "not measured"


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _cost(cells: Mapping[str, Any], kind: str, floor: float | None) -> str:
    found = marginal(cells, kind)
    if not found:
        return "not measured | "
    middle = statistics.median(found)
    if middle <= 0:
        return "less than start-up varies | "
    spread = f" ({min(found):.2f}-{max(found):.2f})" if len(found) > 1 else ""
    ratio = f"{middle / floor:.1f}" if floor and floor > 0 else ""
    return f"{middle:.2f}{spread} | {ratio}"


def _ttft(cells: Mapping[str, Any]) -> str:
    found = cells.get("ttft") or (cells.get("paced 0") or {}).get("ttft") or {}
    if "p50_ms" not in found:
        return "not measured"
    where = "" if "ttft" in cells else ", at full load"
    return f"{found['p50_ms']:.2f} / {found['p99_ms']:.2f} ({found['paired']}{where})"


def _ladder(cells: Mapping[str, Any]) -> str:
    rungs = {
        int(cell.split()[1]): value
        for cell, value in cells.items()
        if cell.startswith("ladder") and value.get("trouble") != TIME_UP
    }
    passed = max((rung for rung, value in rungs.items() if value["ok"]), default=0)
    broken = min((rung for rung, value in rungs.items() if not value["ok"]), default=None)
    if broken is None:
        return f"{passed:,}" if passed else "not measured"
    value = rungs[broken]
    why = value.get("trouble") or (
        f"{value['completed']:,} completed, {value['failed']:,} failed, {value['peak_open']:,} open at once"
    )
    return f"{passed:,} (at {broken:,}: {why})"

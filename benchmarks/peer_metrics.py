"""What each load client calls TTFT, TPOT and ITL, and what it counts as failed, on the same scripted streams.

Four cases, whose truth is the server's own account: chunks of three tokens as speculation makes them; the same over
chat, with the role alone 80 ms before the first token; and 30 % failures (refused, cut, an error inside the stream),
over completions and over chat.
`--save` keeps what every client said, for tests/orchestrator/exchange/test_peer_definitions.py and docs/peers.md.

    python -m benchmarks.peer_metrics --save tests/data/peers
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_rig import BenchServer, Cores, adopt_orphans
from benchmarks.client_runs import RAW, Client, ClientRuns, Outcome, clients
from benchmarks.peers.work import Work
from benchmarks.stream_script import Script

# 40 chunks of 3 tokens, 9 ms apart, as a server with an accept length of 3 makes them.
SPECULATING = {"ttft_ms": 100.0, "rate": 1000.0 / 3.0, "chunk_tokens": 3, "accept_length": 3.0}
STREAMS, REQUESTS, TOKENS = 8, 24, 120


@dataclass(frozen=True, slots=True)
class Case:
    """A name, how the server streams, over which API, how many requests."""

    name: str
    script: Script
    api: str
    requests: int


CASES = (
    Case("speculation", Script(**SPECULATING), "completions", REQUESTS),  # type: ignore[arg-type]
    Case("chat-role", Script(**SPECULATING, role_ms=20.0), "chat", REQUESTS),  # type: ignore[arg-type]
    Case("failures", Script(**SPECULATING, failing=True), "completions", 40),  # type: ignore[arg-type]
    Case("chat-failures", Script(**SPECULATING, failing=True), "chat", 40),  # type: ignore[arg-type]
)


def true_figures(told: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The same metrics by the server's account of the requests that count."""
    ok = [one for one in told if one["status"] == "ok"]
    ttft = [(one["first_ns"] - one["arrived_ns"]) / 1e6 for one in ok]
    tpot = [(one["last_ns"] - one["first_ns"]) / 1e6 / (one["tokens"] - 1) for one in ok]
    span_s = (max(one["last_ns"] for one in told) - min(one["arrived_ns"] for one in told)) / 1e9
    statuses = [one["status"] for one in told]
    return {
        "ok": len(ok),
        "statuses": {status: statuses.count(status) for status in sorted(set(statuses))},
        "ttft_mean_ms": statistics.fmean(ttft),
        "tpot_mean_ms": statistics.fmean(tpot),
        "tokens_of_ok": sum(one["tokens"] for one in ok),
        "span_s": span_s,
        "throughput_tok_s": sum(one["tokens"] for one in ok) / span_s,
    }


def document(client: Client, case: Case, outcome: Outcome) -> dict[str, Any]:
    """What is kept of one run: the truth and what the client said, rounded to 0.1 microseconds."""
    reading = outcome.reading
    assert reading is not None
    return {
        "client": client.name,
        "version": client.version,
        "case": case.name,
        "requests": case.requests,
        "streams": STREAMS,
        "script": asdict(case.script),
        "truth": true_figures(outcome.told),
        "completed": reading.completed,
        "failed": reading.failed,
        "throughput_tok_s": reading.throughput_tok_s,
        "tpot_ms": _rounded(reading.tpot_ms),
        "answers": [[round(a.ttft_ms, 4), _rounded(a.gaps_ms), a.tokens] for a in reading.answers],
        "summary": reading.summary,
    }


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, 4) for value in values]


def row(client: Client, outcome: Outcome) -> str:
    """One line of the table of a case."""
    reading = outcome.reading
    if reading is None:
        return f"| {client.name} {client.version} | {outcome.trouble} | | | | | |"
    itl = "-"
    if reading.itl_ms:
        p50, p99 = np.percentile(reading.itl_ms, (50, 99))
        itl = f"{statistics.fmean(reading.itl_ms):.2f}, {p50:.2f}, {p99:.2f} (n={len(reading.itl_ms)})"
    cells = [
        f"{client.name} {client.version}".strip(),
        f"{statistics.fmean(reading.ttft_ms):.1f}" if reading.ttft_ms else "-",
        f"{statistics.fmean(reading.tpot_ms):.3f}" if reading.tpot_ms else "-",
        itl,
        f"{reading.throughput_tok_s:.0f}" if reading.throughput_tok_s is not None else "-",
        f"{reading.completed} / {reading.failed}",
    ]
    true = true_figures(outcome.told)
    cells.append(
        f"TTFT {true['ttft_mean_ms']:.1f}, TPOT {true['tpot_mean_ms']:.3f}, {true['throughput_tok_s']:.0f} tok/s, "
        f"{true['ok']} ok of {sum(true['statuses'].values())}"
    )
    return "| " + " | ".join(cells) + " |"


HEAD = (
    "| client | TTFT mean ms | TPOT mean ms | ITL mean, p50, p99 ms | tok/s | completed / failed | truth of its run |\n"
    "|---|---|---|---|---|---|---|"
)


def main() -> None:
    """Run every installed client on every case, print a table each."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", action="append", default=[], metavar="NAME")
    arguments.add_argument("--case", action="append", default=[], choices=[case.name for case in CASES])
    arguments.add_argument("--save", type=Path, help="keep what the clients said in this folder")
    arguments.add_argument("--budget-s", type=float, default=900.0)
    asked = arguments.parse_args()
    deadline = time.monotonic() + asked.budget_s
    adopt_orphans()
    cores = Cores.split()
    chosen = [client for client in clients() if client.name != RAW and (not asked.only or client.name in asked.only)]
    with BenchServer(cores) as server:
        runs = ClientRuns(server, cores, lambda: deadline - time.monotonic())
        for case in (case for case in CASES if not asked.case or case.name in asked.case):
            print(f"\n{case.name}\n\n{HEAD}", flush=True)  # noqa: T201
            for client in chosen:
                if client.missing:
                    print(f"| {client.name} {client.version} | {client.missing} | | | | | |")  # noqa: T201
                    continue
                outcome = runs.run(client, case.script, Work("", case.api, STREAMS, case.requests, TOKENS, Path()))
                print(row(client, outcome), flush=True)  # noqa: T201
                if asked.save and outcome.reading is not None:
                    asked.save.mkdir(parents=True, exist_ok=True)
                    text = json.dumps(document(client, case, outcome), separators=(",", ":"))
                    (asked.save / f"{client.name}-{case.name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""How the benchmark of load clients comes to its figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.bench_rig import ChildRun
from benchmarks.client_runs import OURS, RAW, Client, Outcome
from benchmarks.cost_table import cost_table, marginal
from benchmarks.peers.peer import Peer
from benchmarks.peers.work import Reading

CHILD = ChildRun(0, 1.0, 1.0, "", "")


def run(cpu_s: float, tokens: int, **more: Any) -> dict[str, Any]:
    return {"cpu_s": cpu_s, "tokens": tokens, "server_late_ms": 1.0, **more}


def told(digest: str, ttft_ms: int, status: str = "ok") -> dict[str, Any]:
    return {"digest": digest, "arrived_ns": 5, "first_ns": 5 + ttft_ms * 1_000_000, "status": status}


def outcome(said_ms: list[float], digests: tuple[str, ...], *requests: dict[str, Any]) -> Outcome:
    reading = Reading(len(said_ms), 0, ttft_ms=said_ms)
    return Outcome(CHILD, {"requests": list(requests)}, reading, digests, sent=len(requests))


def test_start_up_is_no_cost_of_a_token() -> None:
    cells = {"base 0": run(10.0, 128), "paced 0": run(11.0, 50_128)}

    assert marginal(cells, "paced") == [2.0]


def test_a_run_that_broke_costs_nothing_known() -> None:
    assert marginal({"base 0": run(10.0, 128), "paced 0": run(11.0, 50_128, trouble="exit code 1")}, "paced") == []


def test_first_tokens_are_compared_prompt_by_prompt_where_the_client_tells_which_is_which() -> None:
    errors, paired = outcome([101.5, 120.25], ("b", "a"), told("a", 120), told("b", 100)).ttft_errors_ms()

    assert (errors, paired) == ([1.5, 0.25], "by prompt")


def test_first_tokens_are_compared_in_order_of_length_where_it_does_not() -> None:
    errors, paired = outcome([130.0, 101.0], (), told("a", 120), told("b", 100)).ttft_errors_ms()

    assert (errors, paired) == ([1.0, 10.0], "by rank")


def test_a_prompt_that_was_sent_twice_is_two_requests() -> None:
    errors, _ = outcome([130.0, 101.0], (), told("a", 120), told("a", 100)).ttft_errors_ms()

    assert errors == [1.0, 10.0]


def test_a_client_that_reports_another_number_of_first_tokens_is_not_compared() -> None:
    errors, why = outcome([101.0, 130.0], (), told("a", 120), told("b", 100, "error")).ttft_errors_ms()

    assert (errors, why) == ([], "2 TTFTs reported for 1 answers")


def test_requests_of_a_clients_own_warm_up_are_left_out() -> None:
    one = Outcome(CHILD, {"requests": [told("warm", 1), told("a", 100)]}, Reading(1, 0, ttft_ms=[100.5]), sent=1)

    assert one.ttft_errors_ms()[0] == [0.5]


def test_the_table_gives_ratios_to_the_floor_and_says_who_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.peers.peer.PEERS", Path("/nowhere"))
    absent = Peer("absent", "1.0", "absent/bin/absent", lambda _: [], lambda _: Reading(0, 0))
    cells = {
        RAW: {"base 0": run(0.5, 0), "paced 0": run(1.5, 100_000)},
        OURS: {
            "base 0": run(1.0, 0),
            "paced 0": run(4.0, 100_000),
            "ladder 1000": {"ok": True},
            "ladder 2500": {"ok": False, "completed": 2400, "failed": 100, "peak_open": 2450},
        },
    }
    rows = cost_table([Client(RAW, ""), Client(OURS, ""), Client("absent", "1.0", absent)], cells).splitlines()

    assert rows[2].startswith("| raw reader | 0.5 | 1.00 | 1.0 | not measured |")
    assert rows[3].startswith("| specsweep | 1.0 | 3.00 | 3.0 | not measured |")
    assert rows[3].endswith("| 1,000 (at 2,500: 2,400 completed, 100 failed, 2,450 open at once) |")
    assert rows[4].startswith("| absent 1.0 | not installed: run benchmarks/peers/install.sh |")

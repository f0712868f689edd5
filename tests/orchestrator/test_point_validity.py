"""Which points must not be used, and what is told about those that may."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.metrics import summarise
from orchestrator.trial import LoadLevel
from tests.orchestrator.literal_records import C1, CLIENT, request


@pytest.mark.parametrize(
    ("changes", "level", "reason"),
    [
        ({"loop_lag_p99_ms": 51.0}, C1, "the client was busy: event-loop lag p99 51 ms"),
        ({"cpu_s": 9.6}, C1, "the client was the bottleneck: 96% of a CPU"),
        ({"reconnects": 11}, C1, "the server closed the connection under 11 of 100 requests"),
        ({"stopped_by": "hung"}, C1, "the server hung: no request made progress"),
        (
            {"schedule_delay_p99_ms": 6.0},
            LoadLevel("rate", 10),
            "the client sent late: p99 6.0 ms, more than 5 % of the median TTFT of 50.0 ms",
        ),
    ],
)
def test_a_client_that_was_the_bottleneck_voids_the_point(
    changes: dict[str, Any], level: LoadLevel, reason: str
) -> None:
    records = [request(i * 100, [i * 100 + 50.0]) for i in range(10)]
    assert summarise(records, level=level, client=CLIENT).void_reasons == ()
    metrics = summarise(records, level=level, client=replace(CLIENT, **changes))
    assert (metrics.valid, metrics.void_reasons) == (False, (reason,))


def test_what_limits_the_numbers_is_warned_of() -> None:
    client = replace(CLIENT, stopped_by="cancelled", cache_flushed=False, reconnects=2, gated_requests=1)
    metrics = summarise(
        [request(0, [10], retractions=3), request(100, [110])], level=LoadLevel("concurrency", 4), client=client
    )
    assert metrics.warnings == (
        "only 2 requests for C=4: the level was never reached",
        "the server ran out of KV cache: 3 retractions",
        "the point was stopped before its end",
        "the prefix cache could not be flushed before the point",
        "2 requests went out on a new connection, their kept-alive one was closed",
        "the rate of C=4 was not offered: 1 of 2 requests waited in the client for max_concurrency; "
        "TTFT includes that wait",
    )


def test_timers_of_an_event_loop_do_not_void_a_fast_server() -> None:
    records = [request(i * 100, [i * 100 + 20.0]) for i in range(10)]
    client = replace(CLIENT, schedule_delay_p99_ms=4.9)
    assert summarise(records, level=LoadLevel("rate", 10), client=client).valid

"""Which points must not be used, and what is told about those that may."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.points.metrics import summarise
from orchestrator.records import RequestRecord, RequestStatus
from orchestrator.trial import LoadLevel
from tests.orchestrator.literal_records import C1, client_of, failed, request

MORE = ": spread the load over more processes (`specsweep load`: --processes) or hosts"
WAITS = (
    ", with 10 % of a CPU used: other programs keep its host's CPUs busy; leave it some, or send the load from another "
    "host"
)


@pytest.mark.parametrize(
    ("changes", "level", "reason"),
    [
        (
            {"loop_lag_p99_ms": 51.0},
            C1,
            "the client was the bottleneck: event-loop lag p99 51 ms, at most 50 allowed" + WAITS,
        ),
        (
            {"loop_lag_p99_ms": 51.0, "cpu_s": 6.0},
            C1,
            "the client was the bottleneck: event-loop lag p99 51 ms, at most 50 allowed" + MORE,
        ),
        ({"cpu_s": 9.6}, C1, "the client was the bottleneck: CPU of each load process 96 %, at most 95 allowed" + MORE),
        (
            {"gc_pause_max_ms": 101.0},
            C1,
            "the client was the bottleneck: longest stop for garbage collection 101 ms, at most 100 allowed" + MORE,
        ),
        (
            {"backlog_p99_kib": 260.0},
            C1,
            "the client was the bottleneck: answers unread in its sockets p99 65 KiB for each request in flight, at "
            "most 64 allowed" + WAITS,
        ),
        ({"reconnects": 2}, C1, "the server closed the connection under 2 of 10 requests"),
        ({"stopped_by": "hung"}, C1, "the server hung: no request made progress"),
        (
            {"schedule_delay_p99_ms": 6.0},
            LoadLevel("rate", 10),
            "the client sent late: p99 6.0 ms, at most 5.0 allowed at a median TTFT of 50.0 ms" + WAITS,
        ),
    ],
)
def test_a_client_that_was_the_bottleneck_voids_the_point(
    changes: dict[str, Any], level: LoadLevel, reason: str
) -> None:
    records = [request(i * 100, [i * 100 + 50.0]) for i in range(10)]
    assert summarise(records, level=level, client=client_of(10)).void_reasons == ()
    metrics = summarise(records, level=level, client=client_of(10, **changes))
    assert (metrics.valid, metrics.void_reasons) == (False, (reason,))


def test_what_limits_the_numbers_is_warned_of() -> None:
    client = client_of(2, stopped_by="cancelled", cache_flushed=False, reconnects=2, gated_requests=1)
    metrics = summarise(
        [request(0, [10], retractions=3), request(100, [110])], level=LoadLevel("concurrency", 4), client=client
    )
    assert metrics.warnings == (
        "only 2 requests for C=4: the level was never reached",
        "the server ran out of KV cache: 3 retractions",
        "the point was stopped before its end",
        "the prefix cache could not be flushed before the point",
        "2 requests sent on a new connection: the kept-alive one was closed",
        "the rate of C=4 was not offered: 1 of 2 requests waited in the client for max_concurrency; "
        "TTFT includes that wait",
    )


def test_timers_of_an_event_loop_do_not_void_a_fast_server() -> None:
    records = [request(i * 100, [i * 100 + 20.0]) for i in range(10)]
    client = client_of(10, schedule_delay_p99_ms=4.9)
    assert summarise(records, level=LoadLevel("rate", 10), client=client).valid


def test_a_closed_loop_of_few_request_times_is_warned_of() -> None:
    """Sends from 0 to 5 s, requests of 2 s: 2.5 request times."""
    short = [request(i * 1000, [i * 1000 + 500.0, i * 1000 + 2000.0]) for i in range(6)]
    assert summarise(short, level=LoadLevel("concurrency", 2)).warnings == (
        "requests were sent for only 2.5 request times of 2.0 s: give at least 6 s for C=2",
    )
    assert summarise([*short, request(6000, [6500, 8000])], level=LoadLevel("concurrency", 2)).warnings == ()
    assert summarise(short, level=LoadLevel("rate", 1)).warnings == ()


def test_answers_held_back_are_warned_of() -> None:
    records = [request(i * 100, [i * 100 + 100.0], [8]) for i in range(3)]
    records += [request(i * 100, [i * 100 + 50, i * 100 + 100.0]) for i in (3, 4)]
    assert summarise(records, level=C1).warnings == (
        "3 answers of several tokens came all at once: counted in no time per token",
    )


HUNG = "hung: no event of any answer for 600 s"


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([request(0, [10])], "no measured request was sent"),
        (
            [request(0, [10]), replace(failed(10, 600_010, RequestStatus.TIMEOUT), error=HUNG)],
            f"no measured request was sent: warm-up ended with timeout: {HUNG}",
        ),
        (
            [failed(5, 900, RequestStatus.CANCELLED), failed(0, 100, RequestStatus.CONNECTION)],
            "no measured request was sent: warm-up ended with cancelled",
        ),
    ],
)
def test_a_point_that_ended_in_its_warm_up_says_why(records: list[RequestRecord], reason: str) -> None:
    warm = [replace(r, warmup=True) for r in records]
    assert summarise(warm, level=C1, client=client_of(0)).void_reasons == (reason,)


def test_without_error_texts_the_status_of_the_warm_up_is_told() -> None:
    warm = replace(failed(0, 600_000, RequestStatus.TIMEOUT), error=HUNG, warmup=True)
    columns = {name: [getattr(warm, name)] for name in RequestRecord.__slots__ if name != "error"}
    assert summarise(columns, level=C1).void_reasons == ("no measured request was sent: warm-up ended with timeout",)

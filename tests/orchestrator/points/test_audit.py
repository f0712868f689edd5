"""Was the load the one that was asked for, and was the client able to offer it?"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa
import pytest

from orchestrator.objectives.aim import PointValue
from orchestrator.objectives.scenario_objective import Objective
from orchestrator.points.metrics import summarise
from orchestrator.points.point_validity import client_excess
from orchestrator.previews.percentile_support import thin_percentiles
from orchestrator.rankings.ranking import rank
from orchestrator.records import RequestRecord, RequestStatus
from orchestrator.run_files.point_table import MeasuredPoint, columns_of
from orchestrator.scenarios.scenario import Scenario
from orchestrator.schemas import request_schema
from orchestrator.trial import LoadLevel
from tests.orchestrator.literal_records import C1, client_of, failed, request


def every(n: int, **more: Any) -> list[RequestRecord]:
    return [request(i * 100.0, [i * 100 + 50.0, i * 100 + 90.0], **more) for i in range(n)]


def test_prompts_of_another_length_than_asked_are_warned_of() -> None:
    metrics = summarise([replace(r, prompt_tokens=130, asked_input_tokens=100) for r in every(60)], level=C1)
    assert (metrics.prompt_tokens_mean, metrics.prompt_tokens_asked_mean) == (130.0, 100.0)
    assert metrics.prompt_tokens_error_p95 == pytest.approx(0.3)
    assert "prompts had 130 tokens on average, 100 were asked for" in metrics.warnings
    near = summarise([replace(r, prompt_tokens=105, asked_input_tokens=100) for r in every(60)], level=C1)
    assert near.warnings == ()


def test_answers_that_stopped_early_are_warned_of() -> None:
    metrics = summarise([replace(r, requested_output_tokens=8) for r in every(5)], level=C1)
    assert (metrics.output_tokens_share, metrics.output_tokens_mean) == (0.25, 2.0)
    assert any(w.startswith("answers had 25% of the tokens asked for") for w in metrics.warnings)


def test_prompts_that_came_twice_are_counted() -> None:
    records = [replace(r, prompt_hash="ab"[i % 2]) for i, r in enumerate(every(8))]
    assert summarise(records, level=C1).unique_prompt_share == 0.25
    assert summarise(every(8), level=C1).unique_prompt_share is None  # no hashes


def test_waits_that_the_server_tells_of_are_a_distribution() -> None:
    records = [replace(r, queue_ms=float(i)) for i, r in enumerate(every(5))]
    metrics = summarise(records, level=C1)
    assert (metrics.value("queue_mean_ms"), metrics.value("queue_max_ms")) == (2.0, 4.0)
    assert summarise(every(5), level=C1).queue_ms is None


def test_files_of_earlier_releases_lack_what_was_not_written_then() -> None:
    later = {"traffic", "session_index", "turn", "asked_input_tokens", "queue_ms", "requested_output_tokens"}
    names = [n for n in RequestRecord.__slots__ if n not in later]
    columns = {name: [getattr(r, name) for r in every(5)] for name in names}
    old = summarise(columns, level=C1)
    assert (old.prompt_tokens_asked_mean, old.output_tokens_share, old.queue_ms, old.by_traffic) == (
        None,
        None,
        None,
        {},
    )
    assert old.value("ttft_p50_ms") == 50.0


def test_kinds_of_traffic_are_told_apart() -> None:
    chat = [replace(r, traffic="chat") for r in every(60)]
    code = [replace(request(i * 100.0, [i * 100 + 20.0, i * 100 + 30.0]), traffic="code") for i in range(3)]
    kinds = summarise([*chat, *code, replace(failed(0, 5), traffic="code")], level=C1).by_traffic
    assert list(kinds) == ["chat", "code"]
    assert (kinds["chat"].ttft_p95_ms, kinds["code"].ttft_p95_ms) == (50.0, None)
    assert (kinds["code"].requests_total, kinds["code"].requests_ok, kinds["code"].tpot_p50_ms) == (4, 3, 10.0)
    assert summarise(chat, level=C1).by_traffic == {}


def test_a_client_without_ports_voids_the_point_but_does_not_blame_the_server() -> None:
    records = [*every(97), *(failed(i, i + 1.0, RequestStatus.CLIENT_LIMIT) for i in range(3))]
    metrics = summarise(records, level=C1, client=client_of(100))
    (reason,) = metrics.void_reasons
    assert reason.startswith("3 of 100 requests found no port, file or memory left on the client and say nothing about")
    assert (metrics.requests_failed, metrics.failed_share, metrics.requests_client_limit) == (0, 0.0, 3)
    assert metrics.errors == {"client_limit": 3}
    one = summarise([*every(99), records[-1]], level=C1, client=client_of(100))
    assert (one.void_reasons, len(one.warnings)) == ((), 1)


@pytest.mark.parametrize(
    ("report", "told"),
    [
        ({}, {}),
        ({"cpu_s": 30.0, "processes": 4}, {}),
        ({"cpu_s": 39.0, "processes": 4}, {"cpu": "CPU of each load process 98 %, at most 95 allowed"}),
        ({"cpu_s": 9.6, "duration_s": 0.9}, {}),  # too short to say
        ({"loop_lag_p99_ms": 50.6}, {"loop_lag": "event-loop lag p99 51 ms, at most 50 allowed"}),
        ({"gc_pause_max_ms": 100.0}, {}),
        ({"backlog_p99_kib": 4 * 64.0}, {}),
    ],
)
def test_what_of_a_client_was_too_much_is_named_for_each_process(report: dict[str, Any], told: dict[str, str]) -> None:
    assert client_excess(client_of(9, **report)) == told


def scenario(**measure: Any) -> Scenario:
    at, open_at = {"concurrency": 4}, {"rate": 5.0}
    return Scenario.model_validate(
        {
            "name": "s", "model": {"path": "m"}, "engine": {"kind": "emulator"},
            "workloads": [{"name": "w", "concurrency": [4], "rates": [5.0]}],
            "measure": measure,
            "objectives": [
                {"name": "a", "minimize": "ttft_p95_ms", "at": at, "limits": ["tpot_p50_ms <= 9"]},
                {
                    "name": "b", "maximize": "output_throughput_tok_s", "at": at,
                    "limits": ["e2e_p99_ms <= 9 @ 5 req/s", "chunk_gap_p99_ms <= 9"],
                    "tie_breakers": [{"maximize": "tok_s_per_user_p10", "at": open_at}],
                },
            ],
        }
    )  # fmt: skip


def test_a_scenario_is_told_which_percentiles_it_cannot_have() -> None:
    assert thin_percentiles(scenario(requests=299)) == []
    told = thin_percentiles(scenario(requests=28))
    assert [text.split(" needs ")[0] for text in told] == [
        "objectives[0]: ttft_p95_ms",
        "objectives[1].limits[0]: e2e_p99_ms",
        "objectives[1].tie_breakers[0]: tok_s_per_user_p10",
    ]
    assert told[0] == (
        "objectives[0]: ttft_p95_ms needs 59 requests, a point at C=4 has at most 28: it will have no value; give "
        "measure.requests 59 or more, or a longer measure.duration_s"
    )


def test_seconds_bound_the_requests_of_a_rate_but_not_those_of_a_closed_loop() -> None:
    assert [text.split(":")[0] for text in thin_percentiles(scenario(duration_s=20))] == ["objectives[1].limits[0]"]
    assert thin_percentiles(scenario(duration_s=60)) == []


def test_a_ranking_says_how_many_requests_an_absent_percentile_wants() -> None:
    metrics = summarise(every(40), level=C1)
    load = {"config_id": "a", "workload": "w", "repeat": 0, "trial_id": "a-r0", "host": "h"}
    value: PointValue = MeasuredPoint(load, C1, metrics).value
    objective = Objective.model_validate(
        {"name": "o", "maximize": "output_throughput_tok_s", "at": {"concurrency": 1}, "limits": ["ttft_p95_ms <= 99"]}
    )
    (row,) = rank(objective, {"a": {}}, [value], workload="w").rows
    assert row.gates_failed == (
        "ttft_p95_ms <= 99 (ttft_p95_ms not measurable at C=1: ttft_p95_ms needs 59 requests, 40 were there: give at "
        "least 59 requests (measure.requests) or a longer window)",
    )


def test_a_slow_beginning_is_a_warning_with_its_seconds_and_endless_motion_is_void() -> None:
    """300 requests one after the other: the first 60 take 200 ms, the others 100; then a latency that only grows."""

    def chain(takes: list[float]) -> list[RequestRecord]:
        records, now = [], 0.0
        for took in takes:
            records.append(request(now, [now + took / 2, now + took]))
            now += took
        return records

    noise = [1 + 0.05 * ((i * 7919) % 13 - 6) / 6 for i in range(300)]
    slow = summarise(chain([(200.0 if i < 60 else 100.0) * x for i, x in enumerate(noise)]), level=C1)
    assert (slow.state, slow.valid) == ("not_settled", True)
    assert slow.settle_cut_s == pytest.approx(12, abs=1)
    assert slow.warnings[0].startswith("the first 13 s were not settled: they move the mean latency by 20.0%; give ")
    growing = summarise(chain([100 * (1 + i / 300) * x for i, x in enumerate(noise)]), level=C1)
    assert growing.state == "not_settled"
    assert growing.void_reasons[0].startswith(
        "not settled: latency and throughput changed until the end of the 44.9 s; "
    )
    even = summarise(chain([100 * x for x in noise]), level=C1)
    assert (even.state, even.warnings, even.void_reasons) == ("settled", (), ())
    assert summarise(chain([100.0] * 199), level=LoadLevel("concurrency", 1)).state == "unknown"


def test_a_table_of_requests_gives_what_its_records_give() -> None:
    records = [
        replace(r, prompt_hash="ab"[i % 2], traffic="xy"[i % 2], queue_ms=float(i)) for i, r in enumerate(every(8))
    ]
    records.append(replace(request(0, [1.0]), warmup=True, prompt_hash="warm"))
    identity = {"run_id": "r", "trial_id": "t", "point_id": "p", "config_id": "c", "engine": "e", "attempt": 1}
    rows = [identity | asdict(r) for r in records]
    table = pa.Table.from_pylist(rows, schema=request_schema())
    assert summarise(columns_of(table), level=C1) == summarise(records, level=C1)
    older = table.drop_columns(["traffic", "session_index", "turn", "asked_input_tokens", "queue_ms"])
    metrics = summarise(columns_of(older), level=C1)
    assert (metrics.unique_prompt_share, metrics.queue_ms, metrics.by_traffic) == (0.25, None, {})
    without = pa.Table.from_pylist([row | {"prompt_hash": ""} for row in rows], schema=request_schema())
    assert summarise(columns_of(without), level=C1).unique_prompt_share is None
    assert summarise(columns_of(table.slice(0, 0)), level=C1).requests_total == 0

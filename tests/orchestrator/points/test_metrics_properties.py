"""What holds for whatever requests a point had."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings

from orchestrator.points.metrics import summarise
from orchestrator.points.point_metrics import PointMetrics
from orchestrator.records import RequestRecord, RequestStatus
from orchestrator.trial import LoadLevel
from tests.orchestrator.literal_records import client_of, failed, ms, request

BAD = [s for s in RequestStatus if s is not RequestStatus.OK]


@st.composite
def records(draw: st.DrawFn) -> RequestRecord:
    sent = draw(st.integers(0, 2000))
    if draw(st.integers(0, 4)) == 0:
        return failed(sent, sent + draw(st.integers(0, 50)), draw(st.sampled_from(BAD)))
    at, chunks, tokens = float(sent), [], []
    for _ in range(draw(st.integers(1, 5))):
        at += draw(st.integers(0, 60))
        chunks.append(at)
        tokens.append(draw(st.integers(1, 4)))
    counted = draw(st.booleans())
    record = request(sent, chunks, tokens if counted else [0] * len(tokens), output=sum(tokens))
    return replace(
        record,
        warmup=draw(st.integers(0, 9)) == 0,
        scheduled_ns=ms(max(sent - draw(st.integers(0, 30)), 0))[0],
        prompt_hash=draw(st.sampled_from("abc")),
        traffic=draw(st.sampled_from(["chat", "code"])),
        queue_ms=draw(st.none() | st.floats(0, 1e4)),
        asked_input_tokens=draw(st.none() | st.integers(1, 50)),
    )


POINTS = st.lists(records(), max_size=80)
LEVELS = st.sampled_from([LoadLevel("concurrency", 1), LoadLevel("concurrency", 7), LoadLevel("rate", 20)])


def summary(found: list[RequestRecord], level: LoadLevel) -> PointMetrics:
    sent = sum(not r.warmup for r in found)
    return summarise(found, level=level, client=client_of(sent), request_limits={"ttft_ms": 60, "tpot_ms": 30})


@settings(max_examples=60, deadline=None)
@given(POINTS, LEVELS)
def test_counts_add_up_and_no_value_is_negative_or_infinite(found: list[RequestRecord], level: LoadLevel) -> None:
    m = summary(found, level)
    ways = (m.requests_ok, m.requests_empty, m.requests_failed, m.requests_cancelled, m.requests_client_limit)
    assert sum(ways) == m.requests_total == sum(not r.warmup for r in found)
    assert not any("there are records of" in reason for reason in m.void_reasons)
    for name, value in m.values().items():
        assert value is None or (math.isfinite(value) and value >= 0), name
    assert sum(kind.requests_total for kind in m.by_traffic.values()) in (0, m.requests_total)
    assert m.attainment is None or 0 <= m.attainment <= m.requests_ok / m.requests_total
    assert (m.goodput_rps or 0) <= (m.request_throughput_rps or 0) * (1 + 1e-9)


@settings(max_examples=40, deadline=None)
@given(POINTS, LEVELS)
def test_percentiles_rise_and_stay_within_the_values(found: list[RequestRecord], level: LoadLevel) -> None:
    m = summary(found, level)
    for d in (m.ttft_ms, m.tpot_ms, m.chunk_gap_ms, m.e2e_ms, m.queue_ms):
        if d is not None:
            known = [x for x in (d.p50, d.p90, d.p95, d.p99, d.max) if x is not None]
            assert known == sorted(known)
            assert d.mean <= d.max * (1 + 1e-9)
    if (s := m.tok_s_per_user) is not None and m.tpot_ms is not None:
        known = [x for x in (s.min, s.p5, s.p10, s.p50) if x is not None]
        assert known == sorted(known)
        assert math.isclose(s.min, 1000 / m.tpot_ms.max)


def nearly(one: Any, other: Any) -> bool:
    return (
        math.isclose(one, other, rel_tol=1e-9) if isinstance(one, float) and isinstance(other, float) else one == other
    )


@settings(max_examples=40, deadline=None)
@given(st.lists(POINTS, min_size=1, max_size=4), LEVELS, st.randoms(use_true_random=False))
def test_shards_merged_in_any_order_are_the_same_point(
    shards: list[list[RequestRecord]], level: LoadLevel, rnd: Any
) -> None:
    one = summary([r for shard in shards for r in shard], level).values()
    mixed = list(shards)
    rnd.shuffle(mixed)
    other = summary([r for shard in mixed for r in shard], level).values()
    assert [name for name in one if not nearly(one[name], other[name])] == []


@settings(max_examples=25, deadline=None)
@given(POINTS.filter(bool), LEVELS)
def test_a_request_whose_record_is_lost_voids_the_point(found: list[RequestRecord], level: LoadLevel) -> None:
    kept = [r for r in found if not r.warmup]
    m = summarise(kept, level=level, client=client_of(len(kept) + 1))
    assert any(
        r.startswith(f"{len(kept) + 1} requests were sent, but there are records of {len(kept)} ")
        for r in m.void_reasons
    )

"""Which sessions a phase sends, and that the shards of a load are together the load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.load.load_phase import Phase, measured_phase, profile_phase, warmup_phase
from actors.workloads.request_source import RequestSource
from orchestrator.traffic import Arrival, Draw, Session, Traffic
from orchestrator.trial import LoadLevel, PointSpec, Shard
from tests.actors.load_specs import spec

ALONE = Shard()
S = 1_000_000_000
CHAT = Session("chat", Draw("uniform", low=1, high=4), Draw(mean=1.0), Draw(mean=8))
MIXED = (
    Traffic("chat", 1.0, "random_text", Draw(mean=20), Draw(mean=3), session=CHAT),
    Traffic("single", 2.0, "code", Draw("uniform", low=10, high=30), Draw(mean=3)),
)
# (request, prompt, when it is due)
Sent = list[tuple[int, str, int]]


def sent_by(point: PointSpec, shard: Shard) -> Sent:
    """Everything that a shard sends whose users answer at once and never think."""
    source = RequestSource(point)
    phase = measured_phase(source, shard)
    phase.begin(0)
    found: Sent = []
    while (start := phase.take(1)) is not None:
        script = source.script(start.number, phase.stage)
        for turn in range(start.turns):
            assert turn == 0 or phase.take_turn(1)
            index = source.first_request(start.number, phase.stage) + turn
            found.append((index, script.ask().prompt.digest, start.due_ns))
            script.hear("answer", 3)
    assert phase.over(1)
    return found


@st.composite
def points(draw: Any) -> PointSpec:
    traffic = draw(st.sampled_from([(), MIXED, MIXED[:1], MIXED[1:]]))
    requests = draw(st.integers(1, 24))
    if draw(st.booleans()):
        level = LoadLevel("concurrency", draw(st.integers(1, 9)))
        return spec(level=level, requests=requests, traffic=traffic, arrival=Arrival(ramp_s=3.0))
    arrival = draw(st.sampled_from([Arrival(), Arrival("constant", ramp_s=2.0), Arrival("gamma", 0.5)]))
    limit = draw(st.sampled_from([None, 1, 2, 7]))
    return spec(
        level=LoadLevel("rate", 4.0), requests=requests, traffic=traffic, arrival=arrival, max_concurrency=limit
    )


@settings(max_examples=30, deadline=None)
@given(points(), st.integers(1, 6))
def test_the_shards_of_a_load_send_together_exactly_what_one_process_sends(point: PointSpec, count: int) -> None:
    whole = sent_by(point, ALONE)
    shares = [sent_by(point, Shard(k, count)) for k in range(count)]

    assert sorted(one for share in shares for one in share) == sorted(whole)
    assert len(whole) == point.requests
    assert [index for index, _, _ in sorted(whole)] == list(range(len(whole)))


@settings(max_examples=30, deadline=None)
@given(points(), st.integers(1, 6))
def test_shards_share_slots_and_limits_without_rest(point: PointSpec, count: int) -> None:
    source = RequestSource(point)
    whole = measured_phase(source, ALONE)
    parts = [measured_phase(source, Shard(k, count)) for k in range(count)]

    assert sorted(at for p in parts for at in p.slots) == sorted(whole.slots)
    assert sorted((s.due_ns, s.number) for p in parts for s in p.starts) == [(s.due_ns, s.number) for s in whole.starts]
    if whole.room is not None:
        assert sum(p.room for p in parts if p.room is not None) == whole.room


def test_shares_of_one_hundred_requests_by_eight_slots_in_three_processes() -> None:
    source = RequestSource(spec(level=LoadLevel("concurrency", 8), requests=100))
    parts = [measured_phase(source, Shard(k, 3)) for k in range(3)]

    assert [len(p.slots) for p in parts] == [3, 3, 2]
    assert [len(sent_by(source.spec, Shard(k, 3))) for k in range(3)] == [34, 33, 33]
    assert [start for start, *_ in sent_by(source.spec, Shard(1, 3))][:4] == [1, 4, 7, 10]


def test_a_shard_without_a_slot_sends_nothing_and_the_others_all() -> None:
    point = spec(level=LoadLevel("concurrency", 2), requests=9)

    assert [len(sent_by(point, Shard(k, 4))) for k in range(4)] == [5, 4, 0, 0]


def closed(**changes: Any) -> tuple[RequestSource, Phase]:
    source = RequestSource(spec(level=LoadLevel("concurrency", 2), **changes))
    return source, measured_phase(source, ALONE)


def test_a_session_that_fails_is_made_up_for_in_a_closed_loop() -> None:
    _, phase = closed(requests=6, traffic=MIXED[:1])
    phase.begin(0)
    sent = 0
    while (start := phase.take(1)) is not None:
        sent += 1
        phase.give_back(start.turns - 1)  # its first request failed

    assert sent == 6


def test_time_ends_sessions_that_still_have_something_to_say() -> None:
    _, phase = closed(requests=None, duration_s=2.0, traffic=MIXED[:1])
    phase.begin(0)
    starts = [phase.take(1) for _ in range(4)]
    assert all(starts)
    assert any(start and start.turns > 1 for start in starts)
    assert phase.take_turn(2 * S - 1)
    assert not phase.over(2 * S - 1)
    assert not phase.take_turn(2 * S)
    assert phase.take(2 * S) is None
    assert phase.over(2 * S)
    assert phase.closed_ns == 2 * S


def test_a_closed_warm_up_has_both_its_requests_and_its_seconds() -> None:
    source = RequestSource(spec(warmup_requests=3, warmup_s=1.0))
    phase = warmup_phase(source, ALONE)
    phase.begin(0)
    assert [phase.take(1) is not None for _ in range(4)] == [True] * 4  # the second is not over
    assert phase.take(S) is None
    slow = warmup_phase(source, ALONE)
    slow.begin(0)
    assert [slow.take(2 * S) is not None for _ in range(4)] == [True, True, True, False]


def test_an_open_warm_up_does_not_wait_for_the_ends_of_long_sessions() -> None:
    talk = Session("chat", Draw(mean=5), Draw(), Draw(mean=1))
    kinds = (Traffic("talk", 1.0, "code", Draw(mean=9), Draw(mean=3), session=talk),)
    source = RequestSource(spec(level=LoadLevel("rate", 10.0), warmup_s=1.0, warmup_requests=3, traffic=kinds))
    phase = warmup_phase(source, ALONE)
    phase.begin(0)
    assert [start.turns for start in phase.starts] == [5, 5]
    assert phase.take(S // 2)
    assert phase.take(S)
    assert phase.take_turn(2 * S)  # the third request
    assert not phase.take_turn(2 * S)
    assert phase.over(2 * S)


def test_an_open_loop_with_sessions_offers_requests_at_its_rate_on_the_whole() -> None:
    source = RequestSource(spec(level=LoadLevel("rate", 4.0), requests=200, traffic=MIXED))
    starts = measured_phase(source, ALONE).starts

    assert sum(start.turns for start in starts) == 200
    assert len(starts) < 170
    assert starts[-1].due_ns * len(starts) == pytest.approx(50 * S * (len(starts) - 1))


def test_a_duration_bounds_an_open_loop_by_what_is_due_in_it() -> None:
    def due(seconds: float, arrival: Arrival) -> int:
        point = spec(level=LoadLevel("rate", 10.0), requests=None, duration_s=seconds, arrival=arrival)
        return len(measured_phase(RequestSource(point), ALONE).starts)

    assert due(6.0, Arrival()) == 60
    assert due(6.0, Arrival(ramp_s=4.0)) == 40
    assert due(6.0, Arrival(steps=((2.0, 1.0), (9.0, 3.0)))) == 140
    assert due(0.01, Arrival()) == 1


def test_a_profile_is_taken_under_the_points_own_load() -> None:
    rate = RequestSource(spec(level=LoadLevel("rate", 10.0)))
    assert len(profile_phase(rate, 3.0, ALONE).starts) == 30
    phase = profile_phase(RequestSource(spec()), 3.0, ALONE)
    phase.begin(0)
    assert phase.warmup
    assert phase.take(S) is not None
    assert phase.take(3 * S) is None


@pytest.fixture
def trace(tmp_path: Path) -> str:
    rows = [{"timestamp": 1000 * i * i, "input_length": 20 + i, "output_length": 2} for i in range(7)]
    file = tmp_path / "trace.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    return f"file:{file}"


def test_a_trace_is_cut_by_time_or_count_and_shared_among_shards(trace: str) -> None:
    def starts(scale: float, shard: Shard = ALONE, **changes: Any) -> list[tuple[int, float]]:
        point = spec(level=LoadLevel("trace", scale), dataset=trace, **changes)
        return [(s.number, s.due_ns / S) for s in measured_phase(RequestSource(point), shard).starts]

    assert starts(1.0, requests=3) == [(0, 0.0), (1, 1.0), (2, 4.0)]
    assert starts(2.0, requests=None, duration_s=5.0) == [(0, 0.0), (1, 0.5), (2, 2.0), (3, 4.5)]
    assert starts(1.0, requests=100) == [(i, float(i * i)) for i in range(7)]
    assert starts(1.0, Shard(1, 3), requests=100) == [(1, 1.0), (4, 16.0)]

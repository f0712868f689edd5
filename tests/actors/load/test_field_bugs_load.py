"""What users of load generators met in the field, tried here: load shape, cache, seeds, phases."""

from __future__ import annotations

import math
from typing import Any

import pytest

from actors.load.load_phase import measured_phase
from actors.workloads.request_source import RequestSource
from orchestrator.errors import BadInput
from orchestrator.points.metrics import summarise
from orchestrator.records import RequestRecord
from orchestrator.traffic import Arrival, Draw, Traffic
from orchestrator.trial import ClientReport, LoadLevel, PointSpec, Shard
from tests.actors.load_specs import run, spec
from tests.fakes.leaping_clock import LeapingClock
from tests.fakes.load import load_endpoint
from tests.fakes.scripted_endpoint import DONE, Script, ScriptedEndpoint, native, native_answer

Loaded = tuple[list[RequestRecord], ClientReport]


def common_start(a: str, b: str) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def load(server: ScriptedEndpoint, *points: PointSpec) -> list[Loaded]:
    async def go() -> list[Loaded]:
        async with server:
            return [await load_endpoint(server.url, point) for point in points]

    loaded: list[Loaded] = run(go())
    return loaded


def closed(concurrency: int, requests: int, **more: Any) -> PointSpec:
    return spec(level=LoadLevel("concurrency", concurrency), requests=requests, **more)


class CachingServer(ScriptedEndpoint):
    """Keeps the prompts that it has seen and says how many characters of a new one were cached; flushing forgets."""

    def __init__(self, *, flushes: bool) -> None:
        super().__init__(self._script_of, flush_statuses=(200 if flushes else 404,))
        self._flushes = flushes
        self._seen: list[str] = []
        self._known = 0

    def _script_of(self, n: int, body: dict[str, Any]) -> Script:
        if self._flushes and "/flush_cache" in self.calls[self._known :]:
            self._seen.clear()
        self._known = len(self.calls)
        text = body["text"]
        cached = max((common_start(text, seen) for seen in self._seen), default=0)
        self._seen.append(text)
        tokens = body["sampling_params"]["max_new_tokens"]
        facts = {"prompt_tokens": len(text), "cached_tokens": cached}
        return Script([(0, native("x" * tokens, tokens, {"type": "length", "length": tokens}, **facts)), (0, DONE)])


def most_cached(records: list[RequestRecord]) -> int:
    return max(r.cached_tokens or 0 for r in records if not r.warmup)


def test_two_hundred_requests_per_second_are_due_and_sent_at_that_rate() -> None:
    """Drawn gaps that are slept one after the other gave 183.5 instead of 200."""
    point = spec(level=LoadLevel("rate", 200.0), requests=2000)
    starts = measured_phase(RequestSource(point), Shard()).starts
    assert 1999 / (starts[-1].due_ns - starts[0].due_ns) * 1e9 == pytest.approx(200, rel=1e-9)

    short = spec(level=LoadLevel("rate", 200.0), requests=100)
    ((records, _),) = load(ScriptedEndpoint(lambda n, body: native_answer(1)), short)
    due = sorted(r.scheduled_ns for r in records)
    planned = [start.due_ns for start in measured_phase(RequestSource(short), Shard()).starts]
    assert [at - due[0] for at in due] == [at - planned[0] for at in planned]  # however late one was sent


def test_a_rate_that_a_limit_holds_back_is_told_and_the_wait_is_in_the_latency() -> None:
    point = spec(level=LoadLevel("rate", 100.0), requests=16, max_concurrency=4)
    server = ScriptedEndpoint(lambda n, body: native_answer(1, first_s=0.15), together=range(4))
    ((records, report),) = load(server, point)
    assert (server.peak_open, report.peak_concurrency) == (4, 4)
    assert report.gated_requests >= 8
    metrics = summarise(records, level=point.level, client=report)
    assert any("the rate of 100 req/s was not offered" in warning for warning in metrics.warnings)
    assert metrics.ttft_ms is not None
    assert metrics.ttft_ms.max > 300


BAD = [
    (Arrival("gamma", 0.0), 5.0, "burstiness is 0; allowed"),
    (Arrival("gamma", -1.0), 5.0, "burstiness is -1; allowed"),
    (Arrival(), math.inf, "rate is inf"),
    (Arrival(), math.nan, "rate is nan"),
    (Arrival("poisson", 0.5), 5.0, "burstiness is for arrival gamma, but arrival is poisson"),
]


@pytest.mark.parametrize(("arrival", "rate", "told"), BAD)
def test_arrivals_that_cannot_be_are_refused_before_anything_is_sent(arrival: Arrival, rate: float, told: str) -> None:
    server = ScriptedEndpoint(lambda n, body: native_answer(1))
    with pytest.raises(BadInput, match=told):
        load(server, spec(level=LoadLevel("rate", rate), requests=5, arrival=arrival))
    assert server.calls == []


def test_the_peak_is_never_above_the_limit_nor_below_the_mean() -> None:
    measured_first = range(11, 21)  # after a probe and ten to warm up
    server = ScriptedEndpoint(lambda n, body: native_answer(2, pause_s=0.005), together=measured_first)
    ((records, report),) = load(server, closed(10, 100, warmup_requests=10))
    assert (server.peak_open, report.peak_concurrency) == (10, 10)
    in_flight = [r.in_flight for r in records]
    assert max(in_flight) == 10
    assert sum(in_flight) / len(in_flight) <= report.peak_concurrency


@pytest.mark.parametrize("bound", [{"requests": 20}, {"requests": None, "duration_s": 600.0}])
def test_warm_up_and_prompts_are_counted_once_or_not_at_all(bound: dict[str, Any], clock: LeapingClock) -> None:
    """By count and by time: 100 prompt tokens and 10 output tokens each, the warm-up left out."""

    def script(n: int, body: dict[str, Any]) -> Script:
        finish = {"type": "length", "length": 10}
        return Script([(60.0, native("x", 10, finish, prompt_tokens=100, cached_tokens=0)), (0, DONE)])

    point = spec(**{**bound, "warmup_requests": 5, "output_tokens": 10, "request_timeout_s": 3600.0})
    ((records, report),) = load(ScriptedEndpoint(script, clock=clock), point)
    measured = [r for r in records if not r.warmup]
    assert len(records) - len(measured) == 6  # the probe too
    assert (report.requests, len(measured)) == (len(measured), point.requests or len(measured))
    assert min(r.sent_ns for r in measured) >= max(r.end_ns for r in records if r.warmup)
    metrics = summarise(records, level=point.level, client=report)
    assert metrics.requests_total == len(measured)
    assert (metrics.prompt_tokens_total, metrics.output_tokens_total) == (100 * len(measured), 10 * len(measured))
    assert metrics.output_throughput_tok_s is not None
    assert metrics.request_throughput_rps is not None
    assert metrics.output_throughput_tok_s == pytest.approx(10 * metrics.request_throughput_rps)


def test_the_same_command_twice_meets_a_flushed_cache_and_says_so() -> None:
    point = closed(4, 12, warmup_requests=2)
    first, second = load(CachingServer(flushes=True), point, point)
    sent = [sorted(r.prompt_hash for r in records if not r.warmup) for records, _ in (first, second)]
    assert sent[0] == sent[1]
    assert max(most_cached(first[0]), most_cached(second[0])) < 8
    assert (first[1].cache_flushed, second[1].cache_flushed) == (True, True)


def test_a_cache_that_cannot_be_flushed_shows_in_the_records() -> None:
    point = closed(4, 12)
    first, second = load(CachingServer(flushes=False), point, point)
    assert most_cached(first[0]) < 8
    assert {r.cached_tokens == r.prompt_tokens for r in second[0]} == {True}
    assert second[1].cache_flushed is None


def test_every_point_of_a_ladder_is_cold_without_flushing() -> None:
    ladder = [closed(c, 12, warmup_requests=2) for c in (1, 2, 4, 8)]
    assert max(most_cached(records) for records, _ in load(CachingServer(flushes=False), *ladder)) < 8


def test_ten_requests_and_twenty_share_no_prompt_under_one_seed() -> None:
    def prompts(point: PointSpec) -> set[str]:
        source = RequestSource(point)
        return {source.script(i, "measured").ask().prompt.text or "" for i in range(point.requests or 0)}

    ten, twenty = prompts(closed(1, 10)), prompts(closed(1, 20))
    assert (len(ten), len(twenty)) == (10, 20)
    assert max(common_start(a, b) for a in ten for b in twenty) < 8


def test_shared_prefixes_are_primed_after_the_flush_so_that_nobody_races_to_fill_them() -> None:
    kinds = (Traffic("a", 1.0, "random_text", Draw(mean=60), Draw(mean=2), shared_prefix_tokens=40, prefix_groups=3),)
    server = CachingServer(flushes=True)
    ((records, report),) = load(server, closed(8, 24, warmup_requests=4, traffic=kinds))

    generate, flush = "/generate", "/flush_cache"
    assert server.calls.index(flush) == 5  # behind the probe and the warm-up
    assert server.calls[server.calls.index(flush) + 1 :].count(generate) == 3 + 24
    assert report.requests == 24
    measured = [r for r in records if not r.warmup]
    assert min(r.cached_tokens or 0 for r in measured) > 30  # a token of this server is a character
    assert max((r.cached_tokens or 0) / (r.prompt_tokens or 1) for r in measured) < 0.8

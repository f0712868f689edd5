"""The speed model against the two campaigns that it stands for, measured as a client would, in virtual time."""

from __future__ import annotations

import asyncio
import io
import random
from dataclasses import replace

import pytest

from actors.emulator.batching import Batch, BatchLimits, Request
from actors.emulator.log import LogWriter
from actors.emulator.metrics_text import Metrics
from actors.emulator.profiles import DEEPSEEK_V4_FLASH, QWEN35_122B
from actors.emulator.serving import Engine, EngineOptions, Ticket
from actors.emulator.simulation import ClosedLoop, LoopResult, simulate
from actors.emulator.speed import AcceptanceDraws, DepthSpeed, SpeedModel, acceptance_thresholds

LIMITS = BatchLimits(max_running=64, kv_tokens=400_000, chunk_tokens=8192, captured_batch=64)


def qwen(depth: int, concurrency: int) -> LoopResult:
    limits = replace(LIMITS, num_steps=depth, draft_tokens=depth + 1)
    return simulate(QWEN35_122B.speed, limits, ClosedLoop(concurrency, max(24, 6 * concurrency)))


def deepseek(depth: int, concurrency: int) -> LoopResult:
    running = 8 if depth else 16
    limits = replace(LIMITS, num_steps=depth, draft_tokens=depth + 1, max_running=running)
    return simulate(DEEPSEEK_V4_FLASH.speed, limits, ClosedLoop(concurrency, max(8, 4 * concurrency)))


@pytest.mark.parametrize(
    ("depth", "concurrency", "tokens_per_s"),
    [(1, 1, 123), (3, 1, 234), (3, 32, 1979), (4, 1, 277), (4, 16, 1596), (5, 1, 282), (5, 16, 1119), (10, 1, 282)],
)
def test_the_closed_loop_gives_the_output_rate_of_the_report(depth: int, concurrency: int, tokens_per_s: int) -> None:
    assert qwen(depth, concurrency).output_tokens_per_s == pytest.approx(tokens_per_s, rel=0.02)


@pytest.mark.parametrize("concurrency", [16, 32])
def test_depth_three_is_clearly_best_for_many_requests(concurrency: int) -> None:
    rates = {depth: qwen(depth, concurrency).output_tokens_per_s for depth in (0, 1, 2, 3, 4, 5, 10)}
    best = rates.pop(3)
    assert max(rates.values()) < 0.975 * best


def test_single_request_speed_rises_with_depth_and_flattens_at_five() -> None:
    rates = [qwen(depth, 1).output_tokens_per_s for depth in range(6)]
    assert rates == sorted(rates)
    assert rates[5] / rates[4] < 1.03


def test_accept_length_at_depth_ten_is_the_reported_one() -> None:
    assert qwen(10, 1).accept_length == pytest.approx(5.50, rel=0.01)


def test_plain_decoding_of_the_second_report_has_its_time_per_token_and_flat_aggregate() -> None:
    assert deepseek(0, 1).tpot_s == pytest.approx(0.088, rel=0.02)
    assert deepseek(0, 16).output_tokens_per_s == pytest.approx(23, rel=0.02)


def test_speculation_in_the_second_report_helps_one_request_and_not_sixteen() -> None:
    assert deepseek(0, 1).tpot_s / deepseek(1, 1).tpot_s == pytest.approx(1.47, rel=0.02)
    assert deepseek(1, 16).output_tokens_per_s == pytest.approx(23, rel=0.02)


@pytest.mark.parametrize("depth", [1, 3, 5, 10])
def test_a_few_dozen_verifies_already_have_the_right_mean(depth: int) -> None:
    mean = QWEN35_122B.speed.accept_length(depth) - 1
    draws = AcceptanceDraws(acceptance_thresholds(mean, depth), random.Random(3))
    accepted = [draws.draw() for _ in range(60)]
    assert set(accepted) <= set(range(depth + 1))
    assert sum(accepted) / 60 == pytest.approx(mean, rel=0.02)


def test_a_depth_between_two_calibrated_ones_is_interpolated() -> None:
    model = SpeedModel(((0, DepthSpeed(1.0, 10.0, 1.0)), (4, DepthSpeed(3.0, 14.0, 5.0))))
    assert model.at(2) == DepthSpeed(2.0, 12.0, 3.0)


def test_beyond_the_last_depth_steps_get_longer_and_drafts_no_better() -> None:
    model = SpeedModel(((0, DepthSpeed(1.0, 10.0, 1.0)), (4, DepthSpeed(3.0, 14.0, 5.0))))
    assert model.at(8) == DepthSpeed(3.0, 18.0, 9.0)


def test_a_batch_without_a_captured_graph_runs_slower() -> None:
    model = QWEN35_122B.speed
    assert model.step_time_s(8, 3, captured=False) == pytest.approx(1.35 * model.step_time_s(8, 3))


def test_prefill_costs_at_least_one_pass_over_the_weights() -> None:
    assert QWEN35_122B.speed.prefill_time_s(8) == 0.012
    assert QWEN35_122B.speed.prefill_time_s(8192) == pytest.approx(0.384)


class Clock:
    """Virtual time for an engine; its second sleep takes `stall_s` longer, as on a machine that stands still."""

    def __init__(self, stall_s: float) -> None:
        self.now_s, self._stalls = 0.0, [0.0, stall_s]

    def monotonic(self) -> float:
        return self.now_s

    time = monotonic

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds + (self._stalls.pop(0) if self._stalls else 0.0)


def seconds_for_an_answer(monkeypatch: pytest.MonkeyPatch, stall_s: float) -> float:
    clock = Clock(stall_s)
    monkeypatch.setattr("actors.emulator.serving.time", clock)
    monkeypatch.setattr("actors.emulator.serving.asyncio.sleep", clock.sleep)

    async def go() -> float:
        log, metrics = LogWriter(io.StringIO()), Metrics("m", False)
        engine = Engine(Batch(QWEN35_122B.speed, LIMITS), EngineOptions(1000, 40), log, metrics)
        ticket = Ticket(Request("a", tuple(range(100)), 200), stream=False, received=0.0)
        engine.submit(ticket)
        running = asyncio.create_task(engine.run())
        await ticket.ended()
        running.cancel()
        return clock.now_s

    return asyncio.run(go())


def test_a_machine_that_stood_still_for_a_moment_costs_no_speed_and_longer_is_not_made_up_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain_s = seconds_for_an_answer(monkeypatch, 0.0)

    assert plain_s > 1.0
    assert seconds_for_an_answer(monkeypatch, 0.4) == pytest.approx(plain_s)
    assert seconds_for_an_answer(monkeypatch, 0.6) == pytest.approx(
        plain_s + 0.6, abs=0.02
    )  # the step after it is made up for

"""A closed loop in virtual time: what a client would measure, without waiting for it."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import count

from actors.emulator.batching import Batch, BatchLimits, Request
from actors.emulator.speed import SpeedModel


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """`concurrency` clients, each sending the next request `client_delay_s` after its last one ended."""

    concurrency: int
    requests: int
    prompt_tokens: int = 256
    output_tokens: int = 256
    client_delay_s: float = 0.002


@dataclass(frozen=True, slots=True)
class LoopResult:
    """Tokens per second once settled, mean TPOT in seconds, tokens per verify, seconds simulated."""

    output_tokens_per_s: float
    tpot_s: float
    accept_length: float
    seconds: float


def _prompt(index: int, tokens: int) -> tuple[int, ...]:
    return (-1 - index, *range(tokens - 1))


def simulate(speed: SpeedModel, limits: BatchLimits, loop: ClosedLoop, seed: int = 0) -> LoopResult:
    """Run `loop` against a fresh engine; the rate is that of the settled part, after the first round of requests."""
    batch, numbers = Batch(speed, limits, seed), count()
    arrivals = [(0.0, next(numbers)) for _ in range(loop.concurrency)]
    now, done, settled = 0.0, list[Request](), (0.0, 0)
    while len(done) < loop.requests:
        while arrivals and arrivals[0][0] <= now:
            when, index = heapq.heappop(arrivals)
            batch.submit(Request(str(index), _prompt(index, loop.prompt_tokens), loop.output_tokens, arrived=when))
        step = batch.next_step()
        if step is None:
            now = arrivals[0][0]
            continue
        now += step.seconds
        for request in batch.finish_step(step, now):
            if request.done:
                done.append(request)
                heapq.heappush(arrivals, (now + loop.client_delay_s, next(numbers)))
                if len(done) == loop.concurrency:
                    settled = (now, _tokens(done, batch))
    return _result(done, now, (_tokens(done, batch) - settled[1]) / (now - settled[0]))


def _tokens(done: list[Request], batch: Batch) -> int:
    return sum(r.generated for r in done) + sum(r.generated for r in batch.running if not r.done)


def _result(done: list[Request], now: float, rate: float) -> LoopResult:
    verifies = sum(r.verifies for r in done)
    tpot = sum((r.finished - r.first_token) / max(1, r.generated - 1) for r in done) / len(done)
    accepted = sum(r.accepted for r in done)
    return LoopResult(
        output_tokens_per_s=rate,
        tpot_s=tpot,
        accept_length=1 + accepted / verifies if verifies else 1.0,
        seconds=now,
    )

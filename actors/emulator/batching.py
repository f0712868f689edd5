"""The scheduler's state: admission, prefill, decode steps, acceptance, retraction. Pure: time comes from outside.

`next_step` says what the engine does next and how long it takes; `finish_step` applies it and says which requests
got tokens. The HTTP server drives it by the wall clock, the calibration and the tests by a virtual one.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from actors.emulator.radix import RadixCache
from actors.emulator.speed import AcceptanceDraws, SpeedModel, acceptance_thresholds

NEW_TOKEN_RATIO = 0.7
MIN_RATIO_FACTOR = 0.14
RATIO_DECAY_STEPS = 600
CLIP_NEW_TOKENS = 4096
RETRACT_STEPS = 20


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What start-up resolved: requests at once, tokens of KV cache, tokens of one prefill batch, captured batch."""

    max_running: int
    kv_tokens: int
    chunk_tokens: int
    captured_batch: int
    num_steps: int = 0
    draft_tokens: int = 1
    radix_cache: bool = True
    bigram_cache: bool = False


@dataclass(slots=True, eq=False)
class Request:
    """One request inside the scheduler. Lengths in tokens, times in seconds of the driver's clock.

    A request of fixed length (`ignore_eos`) cannot end early, so the scheduler reckons with all of it.
    """

    rid: str
    prompt: Sequence[int]
    max_new_tokens: int
    fixed_length: bool = False
    arrived: float = 0.0
    generated: int = 0
    cached: int = 0
    prefilled: int = 0
    verifies: int = 0
    accepted: int = 0
    histogram: list[int] = field(default_factory=list)
    retractions: int = 0
    scheduled: float = 0.0
    first_token: float = 0.0
    finished: float = 0.0
    abort_reason: str | None = None
    output_seed: int = 0
    draws: AcceptanceDraws | None = None

    @property
    def tokens_held(self) -> int:
        return len(self.prompt) + self.generated

    @property
    def done(self) -> bool:
        # The prompt of a request for no tokens is computed all the same.
        return self.abort_reason is not None or (self.first_token > 0 and self.generated >= self.max_new_tokens)


@dataclass(frozen=True, slots=True)
class Step:
    """One forward pass. `shares` are (request, prompt tokens computed) of a prefill, empty for a decode step."""

    kind: str
    seconds: float
    requests: tuple[Request, ...]
    shares: tuple[int, ...] = ()
    cached: int = 0
    captured: bool = True


@dataclass(frozen=True, slots=True)
class Retraction:
    """Requests pushed out of a full KV pool, with the tokens that this freed and the new-token ratio before, after."""

    requests: tuple[Request, ...]
    gained: int
    old_ratio: float
    new_ratio: float


class Batch:
    """The waiting queue and the running batch of one scheduler."""

    def __init__(self, speed: SpeedModel, limits: BatchLimits, seed: int = 0) -> None:
        self.speed = speed
        self.limits = limits
        self.waiting: deque[Request] = deque()
        self.prefilling: list[Request] = []
        self.running: list[Request] = []
        self.cache = RadixCache(limits.kv_tokens, limits.radix_cache, limits.bigram_cache)
        self.ratio = NEW_TOKEN_RATIO
        self.full = False
        self.pace = 1.0  # how much longer than modelled every step takes
        self.retractions: list[Retraction] = []
        self._rng = random.Random(seed)
        mean = speed.accept_length(limits.num_steps) - 1
        self._thresholds = acceptance_thresholds(mean, limits.num_steps)
        self._tree = limits.draft_tokens / (limits.num_steps + 1)

    @property
    def speculating(self) -> bool:
        return self.limits.num_steps > 0

    @property
    def tokens_used(self) -> int:
        """KV tokens held by requests, prefix-cache leftovers not counted."""
        return sum(r.tokens_held for r in self.running) + sum(len(r.prompt) for r in self.prefilling)

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.prefilling or self.running)

    def submit(self, request: Request) -> None:
        request.draws = AcceptanceDraws(self._thresholds, self._rng)
        request.histogram = [0] * (self.limits.num_steps + 1)
        self.waiting.append(request)

    def abort(self, request: Request, reason: str) -> None:
        """Drop a request from wherever it is; a step in flight still counts it, but gives it nothing."""
        request.abort_reason = reason
        self.full = False
        for queue in (self.waiting, self.prefilling, self.running):
            if request in queue:
                queue.remove(request)

    def next_step(self) -> Step | None:
        """What runs next: a prefill if any request can enter, else a decode of all that run, else nothing."""
        step = self._prefill_step()
        if step is not None:
            return step
        if not self.running:
            self.ratio = NEW_TOKEN_RATIO
            return None
        self._retract_if_full()
        captured = len(self.running) <= self.limits.captured_batch
        seconds = self.pace * self.speed.step_time_s(len(self.running), self.limits.num_steps, self._tree, captured)
        return Step("decode", seconds, tuple(self.running), captured=captured)

    def _prefill_step(self) -> Step | None:
        cached = self._admit()
        budget = self.limits.chunk_tokens
        requests, shares = [], []
        for request in self.prefilling:
            share = min(budget, len(request.prompt) + request.generated - request.prefilled)
            if share <= 0:
                break
            requests.append(request)
            shares.append(share)
            budget -= share
        if not requests:
            return None
        seconds = self.pace * self.speed.prefill_time_s(sum(shares))
        return Step("prefill", seconds, tuple(requests), tuple(shares), cached)

    def _admit(self) -> int:
        """Move what fits from the queue into prefill; answers the prompt tokens found in the prefix cache.

        A request that enters is charged all that it may generate, one that runs only a share of the rest. Once one does
        not fit, none is tried again before a running one ends.
        """
        cached = 0
        if self.full:
            return cached
        pending = sum(len(r.prompt) - r.prefilled for r in self.prefilling)
        free = self.limits.kv_tokens - self.tokens_used - sum(self._still_to_come(r) for r in self.running)
        while self.waiting and pending < self.limits.chunk_tokens:
            request = self.waiting[0]
            held = len(self.running) + len(self.prefilling)
            wanted = request.tokens_held + min(request.max_new_tokens - request.generated, CLIP_NEW_TOKENS)
            if held >= self.limits.max_running or (wanted >= free and held):
                self.full = True
                break
            self.waiting.popleft()
            request.prefilled = self.cache.match(request.prompt)
            if not request.retractions:
                request.cached = request.prefilled
            cached += request.prefilled
            pending += request.tokens_held - request.prefilled
            free -= wanted
            self.prefilling.append(request)
        return cached

    def _still_to_come(self, request: Request) -> float:
        ratio = 1.0 if request.fixed_length else self.ratio
        return ratio * min(request.max_new_tokens - request.generated, CLIP_NEW_TOKENS)

    def _retract_if_full(self) -> None:
        growth = self.limits.draft_tokens
        used, old, out = self.tokens_used, self.ratio, []
        while len(self.running) > 1 and used + growth * len(self.running) > self.limits.kv_tokens:
            victim = min(self.running, key=lambda r: (r.generated, -len(r.prompt)))
            self.running.remove(victim)
            victim.retractions += 1
            used -= victim.tokens_held
            out.append(victim)
        if not out:
            return
        self.waiting.extendleft(out)
        self.full = False
        decoded, most = sum(r.generated for r in self.running), sum(r.max_new_tokens for r in self.running)
        self.ratio = min(1.0, (decoded + RETRACT_STEPS * len(self.running)) / (most + 1))
        gained = sum(r.tokens_held for r in out)
        self.retractions.append(Retraction(tuple(out), gained, old, self.ratio))

    def finish_step(self, step: Step, now: float) -> list[Request]:
        """Apply a step that ended at `now`; answers the requests that got tokens, the finished ones included."""
        got = self._end_prefill(step, now) if step.kind == "prefill" else self._end_decode(step)
        for request in got:
            if request.done:
                request.finished = now
        left = [r for r in self.running if not r.done]
        self.full = self.full and len(left) == len(self.running)
        self.running = left
        return got

    def _end_prefill(self, step: Step, now: float) -> list[Request]:
        got = []
        for request, share in zip(step.requests, step.shares, strict=True):
            if request.abort_reason is not None:
                continue
            request.scheduled = request.scheduled or now - step.seconds
            request.prefilled += share
            if request.prefilled < request.tokens_held:
                continue
            self.prefilling.remove(request)
            self.running.append(request)
            self.cache.insert(request.prompt)
            request.first_token = request.first_token or now
            request.generated = min(request.max_new_tokens, request.generated + 1)
            got.append(request)
        return got

    def _end_decode(self, step: Step) -> list[Request]:
        decay = NEW_TOKEN_RATIO * (1 - MIN_RATIO_FACTOR) / RATIO_DECAY_STEPS
        self.ratio = max(NEW_TOKEN_RATIO * MIN_RATIO_FACTOR, self.ratio - decay)
        got = []
        for request in step.requests:
            if request.abort_reason is not None:
                continue
            request.generated = min(request.max_new_tokens, request.generated + 1 + self._verify(request))
            got.append(request)
        return got

    def _verify(self, request: Request) -> int:
        if not self.speculating or request.draws is None:
            return 0
        accepted = request.draws.draw()
        # As in SGLang, drafts accepted past the length limit count as correct although they are cut off.
        request.verifies += 1
        request.accepted += accepted
        request.histogram[accepted] += 1
        return accepted

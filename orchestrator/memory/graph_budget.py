"""Scratch of CUDA graph capture: how it grows with the captured tokens. Pure.

SGLang has no formula for it (its reserve is a rule of thumb), so before any start of the model is known this is a wide
guess from the logits of the largest captured batch and from logs; what counts is `memory_calibration`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from orchestrator.memory.estimate import GIB, ZERO, Estimate
from orchestrator.memory.memory_defaults import MemorySettings
from orchestrator.memory.model_shape import ModelShape

Kind = Literal["dense", "vision", "experts", "compressed"]

# Between the pools and the first graph: workspaces of the attention backend. 0.5-0.66 GiB in eight logs, 0.1 with fa3.
WORKSPACE = Estimate(0.5, 0.4)
DECODE_BASE = Estimate(0.1, 0.3)
PREFILL_GIB, PREFILL_BYTES = 0.5, 48.0
# Bytes per captured token and vocabulary entry: logits in bfloat16, gathered, and as float32.
LOGIT_BYTES = 8.0
# How far one point is trusted, and how much more than the least known a capture may need.
SLOPE_FACTOR, MOST_GROWTH, UNSEEN_SHARE = 4.0, 3.0, 1.5
# What logs show beyond the logits: 4 GiB with an image encoder, 6 with experts, 20 for compressed attention (SM120).
GUESS_ERROR: dict[Kind, float] = {"dense": 1.0, "vision": 4.0, "experts": 5.0, "compressed": 20.0}


@dataclass(frozen=True, slots=True)
class ScratchLaw:
    """GiB of one family of graphs against the tokens of its largest captured batch.

    Before any start: a base and so much per token. `points` are (tokens, GiB) of starts; one point cannot tell a base
    from growth, so between them lies the guess for any other size. From `least_at` tokens on at least `least_gib` are
    needed: a capture that died showed it.
    """

    base_gib: float
    gib_per_token: float
    error_gib: float
    points: tuple[tuple[int, float], ...] = ()
    point_error_gib: float = 0.1
    least_gib: float = 0.0
    least_at: int = 0

    def at(self, tokens: int) -> Estimate:
        """GiB for the largest captured batch x tokens per request."""
        guess = self._guess(tokens)
        if not self.least_at or guess.gib - guess.error_gib >= self.least_gib:
            return guess
        if self.points and tokens < self.least_at:  # captures that ended tell more of a smaller one than a dead one
            return guess
        low, high = guess.gib - guess.error_gib, guess.gib + guess.error_gib
        if tokens >= self.least_at:
            low = self.least_gib
        # How much more than that it needs is not known; a smaller capture may need as much.
        high = max(high, self.least_gib * (1.0 if self.points else UNSEEN_SHARE))
        return Estimate((low + high) / 2, (high - low) / 2)

    def _guess(self, tokens: int) -> Estimate:
        sizes = sorted({size for size, _ in self.points})
        if not sizes:
            grown = self.gib_per_token * tokens
            return Estimate(self.base_gib + grown, self.error_gib + grown)
        if len(sizes) == 1:
            gib = statistics.median(y for _, y in self.points)
            grown = self._grown(gib, sizes[0], tokens)
            return Estimate((gib + grown) / 2, abs(grown - gib) / 2 + self._spread(lambda _: gib))
        slope, base = self._line()
        outside = max(0, sizes[0] - tokens, tokens - sizes[-1])
        return Estimate(base + slope * tokens, self._spread(lambda x: base + slope * x) + 0.5 * slope * outside)

    def _grown(self, gib: float, size: int, tokens: int) -> float:
        """In proportion to the tokens, upwards up to three times, or by several times the guessed slope."""
        if tokens <= size:
            return gib * tokens / size
        by_slope = gib + SLOPE_FACTOR * self.gib_per_token * (tokens - size)
        return max(by_slope, gib * min(tokens / size, MOST_GROWTH))

    def _line(self) -> tuple[float, float]:
        """The median of the slopes between points, which one odd start does not bend; graphs never shrink."""
        slopes = [
            (y2 - y1) / (x2 - x1) for i, (x1, y1) in enumerate(self.points) for x2, y2 in self.points[:i] if x1 != x2
        ]
        slope = max(0.0, statistics.median(slopes))
        return slope, statistics.median(y - slope * x for x, y in self.points)

    def _spread(self, line: Callable[[int], float]) -> float:
        return self.point_error_gib + max(abs(y - line(x)) for x, y in self.points)


def guessed_laws(kind: Kind, vocab: int) -> tuple[ScratchLaw, ScratchLaw]:
    """Of target and draft, before any start is known."""
    per_token = vocab * LOGIT_BYTES / GIB
    target = ScratchLaw(WORKSPACE.gib + DECODE_BASE.gib, per_token, WORKSPACE.error_gib + GUESS_ERROR[kind])
    draft = ScratchLaw(DECODE_BASE.gib, per_token, DECODE_BASE.error_gib + GUESS_ERROR[kind] / 2)
    return target, draft


def kind_of(shape: ModelShape) -> Kind:
    """By which the guess is more or less wide."""
    if shape.compressed:
        return "compressed"
    return "experts" if shape.experts else "vision" if shape.vision else "dense"


def captured_batch(ask: MemorySettings, running: int) -> int:
    """The largest batch that is captured once the pool of requests is known; 0 without graphs."""
    return min(max(ask.decode_sizes, default=0), max(running, 1)) if ask.decode_sizes else 0


def captured_tokens(ask: MemorySettings, running: int) -> int:
    """Tokens of the largest captured decode or verify graph."""
    return captured_batch(ask, running) * (ask.draft_tokens if ask.speculating else 1)


def prefill_scratch(ask: MemorySettings, shape_hidden: int) -> Estimate:
    """Of the graphs for prefill. Logs of 8192 tokens: 1.4 GiB at width 4096, 1.7 at 2048, 2.8 at 5120."""
    if not ask.prefill_sizes or not ask.since("0.5.12"):
        return ZERO
    gib = PREFILL_GIB + ask.prefill_sizes[-1] * shape_hidden * PREFILL_BYTES / GIB
    return Estimate(gib, 0.5 + 0.5 * gib)

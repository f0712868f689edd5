"""What is sent at a point and when, as frozen values: drawn lengths, sessions, kinds of traffic, arrivals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# How far above its mean a draw without an upper end is taken to go: one in a thousand normal draws is above.
_TAIL_STDS = 3.0


@dataclass(frozen=True, slots=True)
class Draw:
    """A number drawn per request or per turn: tokens, turns or seconds, as the field that holds it says.

    fixed: always `mean`; normal, lognormal: of this `mean` and `std`; exponential: of this `mean`; uniform: from `low`
    to `high`; histogram: a value of `bins`, pairs of (value, weight). Draws are clipped to `low` and `high`.
    """

    kind: Literal["fixed", "normal", "lognormal", "exponential", "uniform", "histogram"] = "fixed"
    mean: float = 0.0
    std: float = 0.0
    low: float = 0.0
    high: float | None = None
    bins: tuple[tuple[float, float], ...] = ()

    @property
    def typical(self) -> float:
        """The mean, before draws are clipped."""
        if self.kind == "uniform":
            return (self.low + (self.high or self.low)) / 2
        if self.kind == "histogram":
            return sum(value * weight for value, weight in self.bins) / sum(weight for _, weight in self.bins)
        return self.mean

    @property
    def most(self) -> float:
        """The largest value, or one that is rarely exceeded where there is no largest."""
        if self.kind == "fixed":
            return self.mean
        if self.kind == "histogram":
            top = max(value for value, _ in self.bins)
        else:
            top = self.mean + _TAIL_STDS * (self.mean if self.kind == "exponential" else self.std)
        if self.kind == "uniform" and self.high is not None:
            return self.high
        return top if self.high is None else min(top, self.high)


@dataclass(frozen=True, slots=True)
class Session:
    """Several requests of one user, each carrying all that was said before.

    chat: a person reads and types for `gap_s` seconds, then asks `turn_tokens` more; agentic: a tool runs for `gap_s`
    seconds and returns `turn_tokens`. `turns` counts the requests of a session.
    """

    kind: Literal["chat", "agentic"]
    turns: Draw
    gap_s: Draw
    turn_tokens: Draw


@dataclass(frozen=True, slots=True)
class Traffic:
    """One kind of request among those of a point, drawn with `weight`. Lengths are in tokens.

    The first `shared_prefix_tokens` of a prompt are those of its group, one of `prefix_groups` that are equally likely.
    Prompts of a `file:` dataset are sent whole, whatever their length.
    """

    name: str
    weight: float
    dataset: str
    input_tokens: Draw
    output_tokens: Draw
    shared_prefix_tokens: int = 0
    prefix_groups: int = 1
    session: Session | None = None


@dataclass(frozen=True, slots=True)
class Arrival:
    """When requests (of sessions: their first ones) are due.

    Open loop: `poisson`, `constant`, or `gamma` gaps, whose `burstiness` is the shape of the gamma distribution (1 is
    Poisson, less is burstier), or the times of the dataset (`trace`). `steps` are pairs of (seconds, share of the rate)
    that follow each other, the last one stays. Closed loop: the slots begin evenly spread over `ramp_s`; open loop: the
    rate grows linearly from 0 during `ramp_s`.
    """

    kind: Literal["poisson", "constant", "gamma", "trace"] = "poisson"
    burstiness: float = 1.0
    ramp_s: float = 0.0
    steps: tuple[tuple[float, float], ...] = ()


POISSON = Arrival()

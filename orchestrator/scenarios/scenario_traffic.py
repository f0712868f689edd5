"""The part of a scenario that says what one kind of traffic is like: lengths, sessions, mixes, arrivals.

Field descriptions here are the text of docs/scenario.md and of the JSON Schema for editors.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from orchestrator.key_types import Count, Name, Positive, Strict

NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Pair = Annotated[list[NotNegative], Field(min_length=2, max_length=2)]


class Bell(Strict):
    """A mean and a standard deviation of the numbers themselves, and where they are clipped."""

    mean: Positive = Field(description="Mean.")
    std: NotNegative = Field(description="Standard deviation.")
    low: NotNegative | None = Field(None, description="Smaller numbers become this one; default 1, of seconds 0.")
    high: NotNegative | None = Field(None, description="Larger numbers become this one.")


class Range(Strict):
    """All numbers between two are equally likely."""

    low: NotNegative = Field(description="Smallest.")
    high: NotNegative = Field(description="Largest.")


class Decay(Strict):
    """Many small numbers, few large ones."""

    mean: Positive = Field(description="Mean.")
    high: NotNegative | None = Field(None, description="Larger numbers become this one.")


class Distribution(Strict):
    """A number that is drawn anew each time: exactly one of these keys. Counts are rounded."""

    normal: Bell | None = Field(None, description="Normal: `{mean: 512, std: 100, low: 16, high: 2048}`.")
    lognormal: Bell | None = Field(None, description="Lognormal of this mean and standard deviation.")
    uniform: Range | None = Field(None, description="Uniform: `{low: 100, high: 200}`.")
    exponential: Decay | None = Field(None, description="Exponential: `{mean: 5}`.")
    histogram: list[Pair] | None = Field(
        None, min_length=1, description="Pairs of a value and its weight: `[[128, 3], [1024, 1]]`."
    )


def _tag(value: Any) -> str:
    return "Distribution" if isinstance(value, dict | Distribution) else "number"


Drawn = Annotated[Annotated[Count, Tag("number")] | Annotated[Distribution, Tag("Distribution")], Discriminator(_tag)]
DrawnSeconds = Annotated[
    Annotated[NotNegative, Tag("number")] | Annotated[Distribution, Tag("Distribution")], Discriminator(_tag)
]


class SessionKeys(Strict):
    """Several requests of one user, each with all that was said before, the server's answers too."""

    kind: Literal["chat", "agentic"] = Field(
        "chat", description="`chat`: a person who reads and types; `agentic`: a tool runs and its result is appended."
    )
    turns: Drawn = Field(description="Requests per session. Of a `file:` dataset at most what the conversation has.")
    gap_s: DrawnSeconds = Field(0.0, description="Seconds between an answer and the next request.")
    turn_tokens: Drawn = Field(64, description="Tokens that each further request adds: a question, a tool's result.")


class MixEntry(Strict):
    """One kind of traffic among several. What is left out is as the workload says."""

    name: Name = Field(description="Name of this kind, in the column `traffic` of the records.")
    weight: Positive = Field(1.0, description="Share of sessions (of single requests too), relative to the others.")
    dataset: str | None = Field(None, description="As the workload's.")
    input_tokens: Drawn | None = Field(None, description="As the workload's.")
    output_tokens: Drawn | None = Field(None, description="As the workload's.")
    shared_prefix_tokens: int | None = Field(None, ge=0, description="As the workload's.")
    prefix_groups: Count | None = Field(None, description="As the workload's.")
    session: SessionKeys | None = Field(None, description="As the workload's.")


class ArrivalKeys(Strict):
    """When requests are due, in an open loop; sessions: their first ones."""

    kind: Literal["poisson", "constant", "gamma"] = Field("poisson", description="Distribution of the gaps.")
    burstiness: Positive | None = Field(
        None, description="Shape of gamma gaps: 1 is Poisson, less is burstier, more is evener. Only for `gamma`."
    )
    ramp_s: NotNegative = Field(
        0.0,
        description="The rate grows linearly from 0 for so long. Closed loop: slots begin evenly spread over it.",
    )
    steps: list[Pair] = Field(
        default_factory=list,
        description="Pairs of seconds and share of the rate, one after the other; the last one stays: "
        "`[[60, 1.0], [30, 3.0], [60, 1.0]]`.",
    )


class MaxRate(Strict):
    """The highest rate that keeps the workload's `slo`, searched for in each trial between two rates."""

    low: Positive = Field(description="Lowest rate, requests per second; tried first.")
    high: Positive = Field(description="Highest rate that is tried.")
    precision: float = Field(0.05, ge=0.01, le=0.5, description="Share by which neighbouring rates differ.")
    attainment: float = Field(0.9, gt=0, lt=1, description="Share of all issued requests that must keep the slo.")


def _arrival_tag(value: Any) -> str:
    return "ArrivalKeys" if isinstance(value, dict | ArrivalKeys) else "kind"


Arrivals = Annotated[
    Annotated[Literal["poisson", "constant", "gamma"], Tag("kind")] | Annotated[ArrivalKeys, Tag("ArrivalKeys")],
    Discriminator(_arrival_tag),
]

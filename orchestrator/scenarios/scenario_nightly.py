"""The keys of `nightly`: two builds that are measured beside each other every night."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from orchestrator.key_types import Count, Positive, Strict
from orchestrator.scenarios.scenario_engine import Settings

Share = Annotated[float, Field(gt=0, lt=1)]


class Build(Strict):
    """What one build has otherwise than `engine`; what is left out is as there."""

    name: str = Field("", max_length=64, description="What it is called in reports, e.g. a commit.")
    image: str | None = Field(
        None, min_length=1, description="Image in place of the one that `engine.command` runs a container of."
    )
    command: list[str] | None = Field(None, min_length=1, description="In place of `engine.command`.")
    version: str | None = Field(
        None,
        description="SGLang version of this build, against which its settings are checked. With `image` or `command` "
        "it is not taken from `engine`.",
    )
    env: dict[str, str] = Field(default_factory=dict, description="Besides `engine.env`, or instead of it.")
    settings: Settings = Field(default_factory=dict, description="Besides `engine.settings`, or instead of them.")
    extra_args: list[str] = Field(default_factory=list, description="Behind `engine.extra_args`.")
    faults: str | None = Field(
        None, min_length=1, description="In place of `engine.faults` (`emulator` only; docs/emulator-faults.md)."
    )


class Nightly(Strict):
    """What `specsweep nightly` compares, and when it calls a difference one (docs/nightly.md)."""

    reference: Build = Field(description="What is compared with: pinned, and kept for months.")
    candidate: Build = Field(
        default_factory=lambda: Build.model_validate({}),
        description="What is judged, e.g. tonight's image. Default: `engine` as it is.",
    )
    configs: Literal["first", "all"] | list[Settings] = Field(
        "first",
        description="Which configs: the first of the sweep, all of it, or settings as in `sweep.include`, one mapping "
        "for each.",
    )
    metrics: list[str] = Field(
        default_factory=lambda: [
            "output_throughput_tok_s", "ttft_p50_ms", "tpot_p50_ms", "e2e_p50_ms", "accept_length",
        ],
        min_length=1,
        description="What is compared at every load level, besides what the objectives look at. KV tokens, the time of "
        "a start, and whether it serves at all are always compared.",
    )  # fmt: skip
    pairs: Count = Field(3, description="Pairs of starts of each config: reference and candidate on one slot in turn.")
    most_pairs: Count = Field(
        6, description="So many pairs at most where the first ones leave it open; they go to other hosts if there are."
    )
    floors: dict[str, Share] = Field(
        default_factory=dict,
        description="Metric to the least relative difference that counts, e.g. `output_throughput_tok_s: 0.03`. "
        "Default: docs/nightly.md.",
    )
    confidence: Annotated[float, Field(ge=0.9, lt=1)] = Field(0.99, description="Of the interval of a difference.")
    fail_on_change: bool = Field(
        False,
        description="End with exit code 1 also for a worsening that only the nights together show: a change point of "
        "the last 7 nights that nobody marked (docs/history.md#exit-code).",
    )
    max_hours: Positive | None = Field(
        None, description="After so many hours no further pair begins; what was measured by then is judged."
    )

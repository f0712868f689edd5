"""The models of a scenario's workloads: what traffic is offered, at which levels, and what of it is good. Pure."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from orchestrator.key_types import Count, Name, Positive, Strict
from orchestrator.scenarios.scenario_traffic import Arrivals, Drawn, MaxRate, MixEntry, SessionKeys


class Slo(Strict):
    """What makes a request good: upper limits per request. `goodput_rps` and `attainment` count good requests."""

    ttft_ms: Positive | None = Field(None, description="Time to the first token, milliseconds.")
    tpot_ms: Positive | None = Field(None, description="Time per output token after the first, milliseconds.")
    e2e_ms: Positive | None = Field(None, description="Time to the last token, milliseconds.")

    def limits(self) -> dict[str, float]:
        """The limits that are given, by name."""
        return {name: value for name, value in self.model_dump().items() if value is not None}


class Workload(Strict):
    """One kind of traffic and the load levels at which it is offered."""

    name: Name = Field(description="Name by which objectives refer to it.")
    dataset: str = Field(
        "random_text",
        description="`random_text` (prose), `code`, `repetitive`, `random_ids`, or `file:PATH`: prompts, conversations "
        "or a trace (docs/workloads.md). Speculation gains depend on it.",
    )
    input_tokens: Drawn = Field(
        256,
        description="Prompt length in tokens, or how it is drawn: `{normal: {mean: 512, std: 100}}` (closely met; the "
        "server's count is stored).",
    )
    output_tokens: Drawn = Field(256, description="Tokens to generate per request, or how they are drawn.")
    concurrency: list[Count] = Field(default_factory=list, description="Closed loop: requests in flight.")
    rates: list[Positive] = Field(
        default_factory=list, description="Open loop: requests per second, all turns of sessions counted."
    )
    trace: list[Positive] = Field(
        default_factory=list,
        description="Open loop: the trace in `dataset: file:PATH` is replayed so many times as fast as recorded.",
    )
    arrival: Arrivals = Field(
        "poisson",
        description="When requests of `rates` are due: `poisson`, `constant`, `gamma`, or a mapping with bursts, ramps "
        "and steps.",
    )
    max_concurrency: Count | None = Field(None, description="Open loop: most requests in flight; excess waits in us.")
    api: Literal["generate", "completions", "chat"] = Field("generate", description="Which endpoint is used.")
    temperature: float = Field(0.0, ge=0, description="Sampling temperature, always sent.")
    ignore_eos: bool = Field(True, description="Generate `output_tokens` whatever the model says.")
    shared_prefix_tokens: int = Field(0, ge=0, description="Tokens that all prompts of a group have in common.")
    prefix_groups: Count = Field(
        1,
        description="Groups of prompts with a shared prefix each, equally likely; prefixes are primed before the load.",
    )
    session: SessionKeys | None = Field(None, description="Several requests of one user instead of single ones.")
    mix: list[MixEntry] = Field(
        default_factory=list, description="Several kinds of traffic at once. What one leaves out is as said here."
    )
    tokenizer: str | None = Field(
        None,
        min_length=1,
        description="Folder with the model's `tokenizer.json` on the load hosts: lengths of prompts are exact then. "
        "Default: by the server's count for one prompt.",
    )
    slo: Slo | None = Field(None, description="Limits per request, for goodput.")
    max_rate: MaxRate | None = Field(
        None,
        description="Search the highest rate at which requests keep the `slo`, in every trial: metric `max_rate_rps` "
        "(docs/objectives.md).",
    )
    extra_body: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="JSON added to the body of every request, e.g. `{cache_prompt: false}`; keys that Specsweep sends "
        "itself are refused.",
    )

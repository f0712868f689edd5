"""The keys of `objectives`: what is best."""

from __future__ import annotations

from pydantic import Field

from orchestrator.scenario_engine import Count, Name, Positive, Strict


class At(Strict):
    """The load level an objective looks at: exactly one of these."""

    concurrency: Count | None = Field(None, description="A level of the workload's `concurrency` list.")
    rate: Positive | None = Field(None, description="A level of the workload's `rates` list.")
    trace: Positive | None = Field(None, description="A level of the workload's `trace` list.")


class Criterion(Strict):
    """A metric at a load level, and which way is better."""

    maximize: str | None = Field(None, description="Metric to maximise (docs/metrics.md has the names).")
    minimize: str | None = Field(None, description="Or: metric to minimise.")
    workload: str | None = Field(None, description="Workload name; may be left out if there is only one.")
    at: At = Field(description="Load level.")


class Objective(Criterion):
    """One ranking of the configs."""

    name: Name = Field(description="Name of the ranking.")
    limits: list[str] = Field(
        default_factory=list,
        description="Gates such as `ttft_p95_ms <= 500`, at the objective's level unless `@ C=16`, `@ 5 req/s` "
        "or `@ trace x1` follows. A config that fails one is listed behind all that pass.",
    )
    near_tie: float = Field(
        0.02, ge=0, lt=1, description="Configs within this share of the best are near-ties, decided by tie_breakers."
    )
    tie_breakers: list[Criterion] = Field(
        default_factory=list, description="Asked in order; each keeps those within near_tie of its best."
    )

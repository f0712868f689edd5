"""The keys of `objectives`: what is best."""

from __future__ import annotations

from pydantic import Field

from orchestrator.key_types import Count, Name, Positive, Strict


class At(Strict):
    """The load level an objective looks at: exactly one of these."""

    concurrency: Count | None = Field(None, description="A level of the workload's `concurrency` list.")
    rate: Positive | None = Field(None, description="A level of the workload's `rates` list.")
    trace: Positive | None = Field(None, description="A level of the workload's `trace` list.")


class Criterion(Strict):
    """A metric at a load level, or an expression of several, and which way is better."""

    maximize: str | None = Field(
        None,
        description="Metric to maximise (docs/metrics.md has the names), or an expression such as "
        "`geomean(output_throughput_tok_s @ C=1 weight 2, output_throughput_tok_s @ C=4)` (docs/objectives.md).",
    )
    minimize: str | None = Field(None, description="Or: metric or expression to minimise.")
    workload: str | None = Field(None, description="Workload name; may be left out if there is only one.")
    at: At | None = Field(
        None,
        description="Load level of what names none itself; facts of the server's start and `max_rate_rps` need none.",
    )


class Objective(Criterion):
    """One ranking of the configs."""

    name: Name = Field(description="Name of the ranking.")
    preset: str | None = Field(
        None,
        description="`agentic`, `chat`, `batch` or `balanced`: an objective made of the workload's levels "
        "(docs/objectives.md; `specsweep plan` shows it). Keys that are given beside it count instead of its own.",
    )
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


class Axis(Strict):
    """One of the things that a Pareto front weighs against each other."""

    maximize: str | None = Field(None, description="Metric or expression, as of an objective.")
    minimize: str | None = Field(None, description="Or: what to minimise.")
    workload: str | None = Field(None, description="As of the front.")
    at: At | None = Field(None, description="Load level of what names none itself; default: that of the front.")


class Front(Strict):
    """Configs of which none is better in everything: two or three aims that no single number weighs."""

    name: Name = Field(description="Name of the front.")
    axes: list[Axis] = Field(min_length=2, max_length=3, description="What is weighed.")
    workload: str | None = Field(None, description="Workload name; may be left out if there is only one.")
    at: At | None = Field(None, description="Load level of axes and limits that name none.")
    limits: list[str] = Field(
        default_factory=list, description="Gates as of an objective; a config that fails one is not on the front."
    )

    @property
    def criteria(self) -> tuple[Criterion, ...]:
        """The axes with what they take from their front."""
        return tuple(
            Criterion(
                maximize=axis.maximize,
                minimize=axis.minimize,
                workload=axis.workload or self.workload,
                at=axis.at or self.at,
            )
            for axis in self.axes
        )

    @property
    def gated(self) -> Criterion:
        """Where limits hold that name no load level: where the front does, else where its first axis does."""
        first = self.criteria[0]
        return first.model_copy(update={"workload": self.workload or first.workload, "at": self.at or first.at})

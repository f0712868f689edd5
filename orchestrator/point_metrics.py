"""The metrics of one point as a value. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.metric_names import METRICS


@dataclass(frozen=True, slots=True)
class Distribution:
    """`n` values and their statistics; percentiles are linearly interpolated."""

    n: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class PointMetrics:
    """The metrics of one point; `METRICS` has unit and formula of each. `errors` counts failures by status.

    `void_reasons` say why the numbers must not be used, `warnings` what to know when using them.
    """

    requests_total: int
    requests_ok: int
    requests_failed: int
    requests_empty: int
    requests_cancelled: int
    errors: dict[str, int]
    failed_share: float | None
    window_s: float | None
    request_throughput_rps: float | None
    output_throughput_tok_s: float | None
    input_throughput_tok_s: float | None
    ttft_ms: Distribution | None
    tpot_ms: Distribution | None
    chunk_gap_ms: Distribution | None
    e2e_ms: Distribution | None
    schedule_delay_ms: Distribution | None
    accept_length: float | None
    accept_rate: float | None
    cached_share: float | None
    output_tokens_total: int | None
    prompt_tokens_total: int | None
    retractions: int | None
    goodput_rps: float | None
    attainment: float | None
    peak_concurrency: int | None
    achieved_rate_rps: float | None
    server_running_mean: float | None
    server_running_max: int | None
    server_queued_max: int | None
    server_token_usage_max: float | None
    void_reasons: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def valid(self) -> bool:
        return not self.void_reasons

    def value(self, name: str) -> float | None:
        """A scalar metric by its name in METRICS, e.g. `ttft_p95_ms`; KeyError for other names."""
        if name not in METRICS:
            raise KeyError(name)
        if hasattr(self, name):
            found = getattr(self, name)
            return None if found is None else float(found)
        base, statistic, unit = name.rsplit("_", 2)
        distribution = getattr(self, f"{base}_{unit}")
        return None if distribution is None else float(getattr(distribution, statistic))

    def values(self) -> dict[str, float | None]:
        """All scalar metrics."""
        return {name: self.value(name) for name in METRICS}

"""The metrics of one point as a value. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, Literal

from orchestrator.points.batch_means import WithinRun
from orchestrator.points.distribution import Distribution, LowTail
from orchestrator.points.metric_names import METRICS, parts, values_needed

State = Literal["settled", "not_settled", "saturated", "unknown"]
# What an open loop that asks for more than the server can serve says nothing about: it grows as long as one asks.
UNSTEADY = ("ttft_ms", "e2e_ms", "queue_ms", "goodput_rps", "attainment", "attainment_n")
OF_POWER = ("gpu_power_w", "joules_per_output_token", "output_tokens_per_joule")


@dataclass(frozen=True, slots=True)
class TrafficMetrics:
    """One kind of requests among those of a point."""

    requests_total: int
    requests_ok: int
    ttft_p50_ms: float | None
    ttft_p95_ms: float | None
    tpot_p50_ms: float | None
    tpot_p95_ms: float | None
    prompt_tokens_total: int | None
    output_tokens_total: int | None


@dataclass(frozen=True, slots=True)
class PointMetrics:
    """The metrics of one point; `METRICS` has unit and formula of each. `errors` counts failures by status.

    `void_reasons` say why the numbers must not be used, `warnings` what to know when using them. `state` says whether
    the point was in a steady state and `state_reason` why not; of a saturated one the metrics in UNSTEADY are None.
    `by_traffic` has the kinds of requests by name if there are several, `within_run` how sure single metrics are, as
    far as the time slices of this run can say.
    """

    requests_total: int
    requests_ok: int
    requests_failed: int
    requests_empty: int
    requests_cancelled: int
    requests_client_limit: int
    errors: dict[str, int]
    failed_share: float | None
    window_s: float | None
    request_throughput_rps: float | None
    output_throughput_tok_s: float | None
    input_throughput_tok_s: float | None
    ttft_ms: Distribution | None
    tpot_ms: Distribution | None
    tok_s_per_user: LowTail | None
    chunk_gap_ms: Distribution | None
    e2e_ms: Distribution | None
    queue_ms: Distribution | None
    schedule_delay_ms: Distribution | None
    accept_length: float | None
    accept_rate: float | None
    cached_share: float | None
    cached_tokens_total: int | None
    unique_prompt_share: float | None
    output_tokens_total: int | None
    output_tokens_mean: float | None
    output_tokens_share: float | None
    prompt_tokens_total: int | None
    prompt_tokens_mean: float | None
    prompt_tokens_asked_mean: float | None
    prompt_tokens_error_p95: float | None
    retractions: int | None
    goodput_rps: float | None
    attainment: float | None
    peak_concurrency: int | None
    requested_rate_rps: float | None
    achieved_rate_rps: float | None
    server_running_mean: float | None
    server_running_max: int | None
    server_queued_max: int | None
    server_token_usage_max: float | None
    state: State
    settle_cut_s: float | None
    state_reason: str
    by_traffic: dict[str, TrafficMetrics]
    void_reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    attainment_n: float | None = None
    output_throughput_tok_s_per_gpu: float | None = None
    cost_per_million_output_tokens: float | None = None
    gpu_power_w: float | None = None
    joules_per_output_token: float | None = None
    output_tokens_per_joule: float | None = None
    within_run: dict[str, WithinRun] = field(default_factory=dict)

    @property
    def valid(self) -> bool:
        return not self.void_reasons

    def value(self, name: str) -> float | None:
        """A scalar metric by its name in METRICS, e.g. `ttft_p95_ms`; KeyError for other names."""
        of, statistic = _places()[name]
        value = getattr(self, of)
        if statistic is not None and value is not None:
            value = getattr(value, statistic)
        return None if value is None else float(value)

    def values(self) -> dict[str, float | None]:
        """All scalar metrics. A ranking asks every point for them: it looks at each field once."""
        found: dict[str, float | None] = dict.fromkeys(METRICS)
        for of, metrics in _by_field().items():
            whole = getattr(self, of)
            if whole is None:
                continue
            for name, statistic in metrics:
                value = whole if statistic is None else getattr(whole, statistic)
                found[name] = None if value is None else float(value)
        return found

    def absent(self) -> dict[str, str]:
        """Why metrics have no value that would have one at a better point: name -> reason with figures."""
        reasons = {}
        behind = {of: self._values_behind(of) for of in _by_field()}
        for name, of, needed in _needs():
            if self.state == "saturated" and of in UNSTEADY:
                reasons[name] = self.state_reason
            elif name in OF_POWER and self.gpu_power_w is None:
                reasons[name] = "the server's GPUs tell no power (servers on CPU, emulated GPUs, no NVML)"
            elif 0 < (there := behind[of]) < needed:
                what = "gaps between chunks" if of == "chunk_gap_ms" else "requests"
                reasons[name] = (
                    f"{name} needs {needed} {what}, {there} were there: give at least {needed} requests "
                    f"(measure.requests) or a longer window"
                )
        return reasons

    def _values_behind(self, field: str) -> int:
        found = getattr(self, field, None)
        if isinstance(found, Distribution | LowTail):
            return found.n
        return self.requests_ok if field.startswith("prompt_tokens_error") else 0

    def plain(self) -> dict[str, Any]:
        """All fields for JSON: null where a thing could not be measured, never 0."""
        found: dict[str, Any] = plain(self)
        return found


@cache
def _places() -> dict[str, tuple[str, str | None]]:
    """By metric the field of PointMetrics, and the statistic of it if it is a distribution."""
    return {name: parts(name) or (name, None) for name in METRICS}


@cache
def _by_field() -> dict[str, list[tuple[str, str | None]]]:
    """By field its metrics, each with the statistic that it is."""
    found: dict[str, list[tuple[str, str | None]]] = {}
    for name, (of, statistic) in _places().items():
        found.setdefault(of, []).append((name, statistic))
    return found


@cache
def _needs() -> tuple[tuple[str, str, int], ...]:
    """Metrics that may lack a value at a worse point, each with its field and how many values it needs."""
    needs = ((name, field, values_needed(name)) for name, (field, _) in _places().items())
    return tuple(need for need in needs if need[2] > 1 or need[1] in UNSTEADY or need[0] in OF_POWER)


def plain(value: Any) -> Any:
    """As JSON has it; a number that is none becomes null."""
    if is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

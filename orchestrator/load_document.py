"""What `specsweep load --json` prints of one load: null where a thing could not be measured, never 0 or NaN. Pure."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from orchestrator.metrics import PointMetrics
from orchestrator.point_metrics import Distribution
from orchestrator.trial import ClientReport, PointSpec, content_hash

# What only later releases of the metrics have.
_PERHAPS = ("cached_tokens_total", "unique_prompt_share")


@dataclass(frozen=True, slots=True)
class LoadResult:
    """One load that was offered. `faults`: load processes that were lost. `is_auto`: nobody gave their number."""

    url: str
    spec: PointSpec
    metrics: PointMetrics
    client: ClientReport
    faults: tuple[str, ...] = ()
    is_auto: bool = True

    @property
    def void_reasons(self) -> tuple[str, ...]:
        """Those of the metrics, with what to do about a client that was too slow."""
        more = f"give --processes {self.client.processes * 2}"
        found = [f"{r}; {more}" if r.startswith("the client ") else r for r in self.metrics.void_reasons]
        return (*found, *self.faults)

    def document(self) -> dict[str, Any]:
        """For `json.dumps`."""
        metrics, client, spec = self.metrics, self.client, self.spec
        measured = {f.name: _plain(getattr(metrics, f.name)) for f in fields(metrics)}
        measured |= {name: _plain(getattr(metrics, name, None)) for name in _PERHAPS}
        return {
            "url": self.url,
            "api": spec.api,
            "model": spec.model,
            "seed": spec.seed,
            "workload_hash": workload_hash(spec),
            **measured,
            "requested_rate_rps": spec.level.value if spec.level.kind == "rate" else None,
            "duration_s": _plain(client.duration_s),
            "stopped_by": client.stopped_by,
            "cache_flushed": client.cache_flushed,
            "client": client_account(client),
            "void_reasons": list(self.void_reasons),
            "valid": not self.void_reasons,
        }


def client_account(client: ClientReport) -> dict[str, Any]:
    """How the load generator itself did. `cpu_share` is of one CPU per process."""
    share = client.cpu_s / client.duration_s / client.processes if client.duration_s else None
    return {
        "cpu_s": _plain(client.cpu_s),
        "cpu_share": _plain(share),
        "loop_lag_ms_p99": _plain(client.loop_lag_p99_ms),
        "processes": client.processes,
        "gc_pause_ms_max": _plain(client.gc_pause_max_ms),
        "backlog_kib_p99": _plain(client.backlog_p99_kib),
        "gated_requests": client.gated_requests,
        "reconnects": client.reconnects,
    }


def workload_hash(spec: PointSpec) -> str:
    """Equal for loads that send the same kind of requests in the same way, whatever their seed, level and server."""
    sent = asdict(spec)
    for name in ("workload", "level", "model", "seed", "profile", "counters", "request_timeout_s", "tokenizer"):
        del sent[name]
    return content_hash(sent)


def _plain(value: Any) -> Any:
    if isinstance(value, Distribution):
        return {name: _plain(part) for name, part in asdict(value).items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return list(value) if isinstance(value, tuple) else value

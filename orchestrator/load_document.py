"""What `specsweep load --json` prints of one load: null where a thing could not be measured, never 0 or NaN. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from orchestrator.metrics import PointMetrics
from orchestrator.trial import ClientReport, PointSpec


@dataclass(frozen=True, slots=True)
class LoadResult:
    """One load that was offered. `faults`: load processes that were lost."""

    url: str
    spec: PointSpec
    metrics: PointMetrics
    client: ClientReport
    faults: tuple[str, ...] = ()

    @property
    def void_reasons(self) -> tuple[str, ...]:
        """Those of the metrics, with what to do about a client that was too slow."""
        more = f"; give --processes {self.client.processes * 2}"
        found = [reason + more if reason.startswith("the client ") else reason for reason in self.metrics.void_reasons]
        return (*found, *self.faults)

    def document(self) -> dict[str, Any]:
        """For `json.dumps`."""
        metrics, client, spec = self.metrics, self.client, self.spec
        return {
            "url": self.url,
            "api": spec.api,
            "model": spec.model,
            "seed": spec.seed,
            "workload_hash": client.workload_hash,
            **_plain(metrics),
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


def _plain(value: Any) -> Any:
    """As JSON has it; a number that is none becomes null."""
    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

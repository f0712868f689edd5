"""What `specsweep load --json` prints of one load: null where a thing could not be measured, never 0 or NaN. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orchestrator.points.point_metrics import PointMetrics, plain
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
            **metrics.plain(),
            "duration_s": plain(client.duration_s),
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
        "cpu_s": plain(client.cpu_s),
        "cpu_share": plain(share),
        "loop_lag_ms_p99": plain(client.loop_lag_p99_ms),
        "processes": client.processes,
        "gc_pause_ms_max": plain(client.gc_pause_max_ms),
        "backlog_kib_p99": plain(client.backlog_p99_kib),
        "gated_requests": client.gated_requests,
        "reconnects": client.reconnects,
    }

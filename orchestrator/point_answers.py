"""What the requests of a running point say of its server."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np

from orchestrator.outcome import Diagnosis, Failed, Label, Phase
from orchestrator.server_start import LoadSeen
from orchestrator.trial import ClientReport, Point

_READ = ("warmup", "status", "http_status", "error", "scheduled_ns", "first_token_ns")


class PointAnswers:
    """Whether any measured request of a point succeeded, how soon, and what the first failure said."""

    def __init__(self) -> None:
        self._ok = 0
        self._failed = 0
        self._first: str | None = None
        self._ttfts_ns = array("q")

    def count(self, batch: Any) -> None:
        columns = (batch.column(name).to_pylist() for name in _READ)
        for warmup, status, http_status, error, scheduled_ns, first_token_ns in zip(*columns, strict=True):
            if status in {"ok", "empty", "cancelled"}:
                self._ok += not warmup and status == "ok"
                if not warmup and status == "ok" and first_token_ns is not None:
                    self._ttfts_ns.append(first_token_ns - scheduled_ns)
            else:
                self._failed += not warmup
                self._first = self._first or f"{status} {http_status or ''} {error or ''}"[:300]

    @property
    def median_ttft_ms(self) -> float | None:
        """From the due time, of measured requests that ended well; None without one."""
        return float(np.median(self._ttfts_ns)) / 1e6 if self._ttfts_ns else None

    def load(self, point: Point, report: ClientReport | None) -> LoadSeen:
        """What is told to whoever judges the server. A load gives up after as long as one request may take."""
        hung = report is not None and report.stopped_by == "hung"
        return LoadSeen(self._ok > 0, point.spec.request_timeout_s if hung else None)

    def verdict(self, point: Point) -> Failed | None:
        """A point without a single success is not a measurement of the config."""
        if self._ok or not self._failed:
            return None
        told = f"none of {self._failed} requests at {point.spec.workload} {point.spec.level} succeeded: {self._first}"
        return Failed(Diagnosis(Label.CLIENT_ERRORS, Phase.SERVING, " ".join(told.split())))

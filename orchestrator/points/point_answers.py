"""What the requests of a running point say of its server."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.outcome import Diagnosis, Failed, Label, Phase
from orchestrator.server_start import LoadSeen
from orchestrator.trial import ClientReport, Point

_NO_FAILURES = pa.array(["ok", "empty", "cancelled"])


class PointAnswers:
    """Whether any measured request of a point succeeded, how soon, and what the first failure said."""

    def __init__(self) -> None:
        self._ok = 0
        self._failed = 0
        self._first: str | None = None
        self._ttfts_ns = array("q")

    def count(self, batch: Any) -> None:
        """Column by column: a driver of many slots reads every row of them all."""
        status, measured = batch.column("status"), ~batch.column("warmup").to_numpy(zero_copy_only=False)
        ended_well = pc.is_in(status, _NO_FAILURES).to_numpy(zero_copy_only=False)
        good = pc.fill_null(pc.equal(status, "ok"), False).to_numpy(zero_copy_only=False) & measured
        self._ok += int(good.sum())
        self._failed += int((~ended_well & measured).sum())
        if self._first is None and not ended_well.all():
            first = int(np.argmin(ended_well))
            told = [batch.column(name)[first].as_py() for name in ("status", "http_status", "error")]
            self._first = f"{told[0]} {told[1] or ''} {told[2] or ''}"[:300]
        waits_ns = pc.subtract(batch.column("first_token_ns"), batch.column("scheduled_ns"))
        waits_ns = waits_ns.filter(pa.array(good)).drop_null()
        self._ttfts_ns.frombytes(waits_ns.to_numpy().astype(np.int64, copy=False).tobytes())

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
        told = f"none of {self._failed} requests at {point.text} succeeded: {self._first}"
        return Failed(Diagnosis(Label.CLIENT_ERRORS, Phase.SERVING, " ".join(told.split())))

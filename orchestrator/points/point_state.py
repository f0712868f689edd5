"""The state of a point: settled, not settled, saturated or unknown, and what follows from it. Pure: numpy only.

settled       nothing to say
not settled   the first values of latency or throughput are not like the rest: a warning, with the seconds; or there is
              no settled part at all: void
saturated     open loop only: latencies, goodput and attainment are absent, the throughput is the server's capacity
unknown       too few requests or too short a point to tell, or a load that was not meant to be even
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orchestrator.points.point_metrics import State
from orchestrator.points.rates import Window, peak_concurrency, tokens_by_chunk
from orchestrator.points.request_columns import Flags, Floats, RequestColumns
from orchestrator.points.saturation import offered_evenly, saturation
from orchestrator.points.settled import Settling, settling
from orchestrator.records import RequestStatus
from orchestrator.trial import LoadLevel

# Slices of the window in which the throughput is followed.
_SLICES = 200


@dataclass(frozen=True, slots=True)
class PointState:
    """`cut_s`: how much of the beginning MSER-5 would leave out. `void` if nothing can be made of the point."""

    name: State
    cut_s: float | None = None
    reason: str = ""
    void: bool = False


UNKNOWN = PointState("unknown")
_LIMIT = {False: "the server's capacity", True: "what max_concurrency lets through"}


def judge_state(
    columns: RequestColumns, ok: Flags, window: Window | None, level: LoadLevel, *, gated: bool = False
) -> PointState:
    """Whether the point's numbers are those of a steady state. `gated`: requests waited for max_concurrency."""
    if window is None or not ok.any() or level.kind == "trace":
        return UNKNOWN
    if level.open_loop:
        if len(columns) < 2 or not offered_evenly(columns.scheduled_ns):
            return UNKNOWN
        if (behind := saturation(columns, ok)) is not None:
            (before, after), (early, late) = behind.in_flight, behind.latency_s
            return PointState(
                "saturated",
                reason=f"saturated at {level}: within {behind.seconds:.0f} s the requests in flight grew from "
                f"{before:.0f} to {after:.0f} and their latency from {early:.3g} to {late:.3g} s; latencies would only "
                f"say how long was measured, the throughput is {_LIMIT[gated]}: offer a lower rate",
            )
    return _settled(columns, ok, window, level)


def _settled(columns: RequestColumns, ok: Flags, window: Window, level: LoadLevel) -> PointState:
    start = columns.scheduled_ns if level.open_loop else columns.sent_ns
    order = np.argsort(start[ok], kind="stable")
    begun, latency = start[ok][order], (columns.end_ns - start)[ok][order]
    found = []
    if (by_latency := settling(latency, peak_concurrency(columns) or 1)) is not None:
        cut_s = float(begun[by_latency.cut] - begun[0]) / 1e9
        found.append(("latency", by_latency, cut_s))
    if by_latency is not None and not level.open_loop:
        rates = output_slices(columns, ok, window, _SLICES)
        together = max(round(_SLICES * float(np.median(latency)) / 1e9 / window.seconds), 1)
        if (by_rate := settling(rates, together)) is not None:
            found.append(("throughput", by_rate, by_rate.cut / _SLICES * window.seconds))
    return _judged(found, window)


def _judged(found: list[tuple[str, Settling, float]], window: Window) -> PointState:
    if not found:
        return UNKNOWN
    moving = [what for what, series, _ in found if series.kind == "moving"]
    if moving:
        return PointState(
            "not_settled",
            max(cut_s for _, _, cut_s in found),
            f"not settled: {' and '.join(moving)} changed until the end of the {window.seconds:.3g} s; "
            f"give a longer warm-up (measure.warmup_s) and at least {4 * window.seconds:.3g} s",
            void=True,
        )
    real = [entry for entry in found if entry[1].kind == "beginning"]
    if not real:
        return PointState("settled", 0.0)
    what, series, cut_s = max(real, key=lambda entry: entry[2])
    return PointState(
        "not_settled",
        cut_s,
        f"the first {cut_s:.3g} s were not settled: they move the mean {what} by {series.shift:.1%}; give "
        f"measure.warmup_s {cut_s:.3g} s more, or a window of at least {10 * cut_s:.3g} s",
    )


def output_slices(columns: RequestColumns, ok: Flags, window: Window, count: int) -> Floats:
    """Output tokens in each of `count` equal parts of the window, of a closed loop."""
    served = ok | columns.has_status(RequestStatus.CANCELLED)
    inside = served[columns.chunk_owner] & window.holds(columns.chunk_ns)
    at = (columns.chunk_ns[inside] - window.begin_ns) / (window.end_ns - window.begin_ns) * count
    which = np.minimum(at.astype(np.int64), count - 1)
    return np.bincount(which, weights=tokens_by_chunk(columns)[inside], minlength=count).astype(np.float64)

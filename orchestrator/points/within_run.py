"""How sure the metrics of one point are within its run, by metric name. Pure: numpy only."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from orchestrator.points.batch_means import SLICES, WithinRun, of_mean, of_median, of_rate
from orchestrator.points.point_state import output_slices
from orchestrator.points.rates import Window
from orchestrator.points.request_columns import Flags, Floats, Integers, RequestColumns
from orchestrator.trial import LoadLevel

_LATENCIES = ("ttft", "tpot", "e2e")
# Output throughput times or over a constant.
_OF_THROUGHPUT = ("output_throughput_tok_s_per_gpu", "cost_per_million_output_tokens")


def within_run(
    columns: RequestColumns, ok: Flags, latencies: Mapping[str, Floats], window: Window | None, level: LoadLevel
) -> dict[str, WithinRun]:
    """Relative standard errors of throughputs and of means and medians of latencies; those that can be known.

    Latencies: requests by the slice of their start. Output throughput: tokens by slice of the settled window. Requests
    per second: in a closed loop those of the mean e2e, whose inverse it is; in an open one by the slice of their end.
    """
    if window is None or not ok.any():
        return {}
    start = columns.scheduled_ns if level.open_loop else columns.sent_ns
    slices = _slices(start, Window(float(start[ok].min()), float(start[ok].max())))
    found: dict[str, WithinRun | None] = {}
    for name in _LATENCIES:
        values = latencies[f"{name}_ms"]
        known = ok & ~np.isnan(values)
        found[f"{name}_mean_ms"] = of_mean(slices[known], values[known])
        found[f"{name}_p50_ms"] = of_median(slices[known], values[known])
    if level.open_loop:
        moved = _moved(columns, ok, window)
        inside = ok & moved.holds(columns.end_ns)
        ends = _slices(columns.end_ns, moved)[inside]
        found["request_throughput_rps"] = of_rate(_sums(ends, np.ones(len(ends))))
        found["output_throughput_tok_s"] = of_rate(_sums(ends, columns.output_tokens[inside]))
    elif (columns.chunk_counts[ok] > 0).all():
        found["output_throughput_tok_s"] = of_rate(output_slices(columns, ok, window, SLICES[0]))
    if not level.open_loop:
        found["request_throughput_rps"] = found["e2e_mean_ms"]
    found |= dict.fromkeys(_OF_THROUGHPUT, found.get("output_throughput_tok_s"))
    return {name: known_error for name, known_error in found.items() if known_error is not None}


def _moved(columns: RequestColumns, ok: Flags, window: Window) -> Window:
    """The window moved by the median latency, as the rates of an open loop are counted."""
    by = float(np.median((columns.end_ns - columns.scheduled_ns)[ok]))
    return Window(window.begin_ns + by, window.end_ns + by)


def _slices(times: Floats, window: Window) -> Integers:
    """The number of the slice of each time, those outside in the first or the last one."""
    length = max(window.end_ns - window.begin_ns, 1.0) / SLICES[0]
    return np.asarray(np.clip(np.nan_to_num((times - window.begin_ns) // length), 0, SLICES[0] - 1).astype(np.int64))


def _sums(slices: Integers, amounts: Floats) -> Floats:
    return np.bincount(slices, amounts, SLICES[0]).astype(np.float64)

"""The settled window of a point, and what was done in it per second. Pure: numpy only.

Start of a request: its send in a closed loop, its due time in an open loop (so that a queue is not hidden).
Settled window, closed loop: from the send that first has all C slots filled (or else the C-th) until the first slot
that is not filled again falls free (of n requests, end number n - C + 1). Open loop: first to last due time.

Requests per second, closed loop: mean number in flight inside the window / mean latency (Little's law). To count ends
would not do: requests of one batch end together, and the window ends with the first of them. Nor would parts of
requests: every slot begins the window with a new request but ends it, more likely than not, in a long one.
Rates, open loop: the server is empty when the window begins, so what is counted is counted in the window moved by the
median time from start to event. A server that keeps up then shows the arrival rate, one that does not its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.points.request_columns import Flags, Floats, RequestColumns
from orchestrator.records import RequestStatus
from orchestrator.trial import LoadLevel


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of a point by the clock of its requests."""

    begin_ns: float
    end_ns: float

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.begin_ns) / 1e9

    def holds(self, times: Floats) -> Flags:
        return (times >= self.begin_ns) & (times <= self.end_ns)

    def holds_delayed(self, times: Floats, delay: Floats) -> Flags:
        """Which times lie inside the window moved by the median of `delay`, its beginning left out.

        So n events at an even pace are the n - 1 intervals that they span.
        """
        moved = float(np.median(delay))
        return (times > self.begin_ns + moved) & (times <= self.end_ns + moved)

    def overlap(self, begin: Floats, end: Floats) -> Floats:
        return np.asarray(np.maximum(np.minimum(end, self.end_ns) - np.maximum(begin, self.begin_ns), 0.0))


def settled_window(columns: RequestColumns, ok: Flags, level: LoadLevel) -> Window | None:
    """The settled window as defined at the top of this module; None if it has no length.

    An open loop that we cut ends one median latency before the cut: what was due later had no chance to end.
    """
    if not len(columns):
        return None
    if level.open_loop:
        last = float(columns.scheduled_ns.max())
        cut = columns.end_ns[columns.has_status(RequestStatus.CANCELLED)]
        if len(cut) and ok.any():
            last = min(last, float(cut.min() - np.median((columns.end_ns - columns.scheduled_ns)[ok])))
        window = Window(float(columns.scheduled_ns.min()), last)
    else:
        sent, in_flight = in_flight_at_sends(columns)
        slots = min(int(level.value), len(sent))
        filled = int(np.argmax(in_flight >= slots)) if in_flight.max() >= slots else slots - 1
        # Of n requests all but the last C are followed by another one in their slot, so end n - C + 1 leaves one empty.
        window = Window(float(sent[filled]), float(np.sort(columns.end_ns)[len(sent) - slots]))
    return window if window.end_ns > window.begin_ns else None


def request_rate(
    columns: RequestColumns, which: Flags, ok: Flags, window: Window | None, level: LoadLevel
) -> float | None:
    """These of the OK requests, completed per second; None if nothing was measured.

    Open loop: those that ended inside the window moved by the median latency; where latencies differ, it is low by
    their mean absolute deviation / window. Closed loop: mean number of OK requests in flight / their mean latency,
    times the share of these among them. A request that we cancelled has no end, but held a slot in which others would
    have completed: it counts with them, with their mean latency or the time that it took so far if that is more.
    """
    if window is None or not ok.any():
        return None
    if level.open_loop:
        e2e = columns.end_ns - columns.scheduled_ns
        return float((which & window.holds_delayed(columns.end_ns, e2e[ok])).sum()) / window.seconds
    cut = columns.has_status(RequestStatus.CANCELLED)
    served = ok | cut
    took = columns.end_ns - columns.sent_ns
    took[cut] = np.maximum(took[cut], took[ok].mean())
    in_flight_s = float(window.overlap(columns.sent_ns, columns.end_ns)[served].sum()) / 1e9
    request_s = float(took[served].mean()) / 1e9
    share = float(which.sum() / ok.sum())
    return in_flight_s / window.seconds / request_s * share if request_s > 0 else None


def output_rate(columns: RequestColumns, ok: Flags, window: Window | None, level: LoadLevel) -> float | None:
    """Output tokens made inside the window per second; None if an OK request has no count at all.

    Open loop: all tokens of the OK requests whose answer has its middle in the window moved by the median time to it.
    Counted chunk by chunk, those of the first and the last requests that lie outside would be missing.
    Closed loop: of OK requests, and of those we cut at the end, whose chunk came inside the window; a request that
    showed no chunk has its tokens at its end.
    """
    if window is None or not ok.any() or np.isnan(columns.output_tokens[ok]).any():
        return None
    if level.open_loop:
        first = np.where(np.isnan(columns.first_token_ns), columns.end_ns, columns.first_token_ns)
        middle = (first + columns.end_ns) / 2
        inside = ok & window.holds_delayed(middle, (middle - columns.scheduled_ns)[ok])
        return float(columns.output_tokens[inside].sum()) / window.seconds
    served = ok | columns.has_status(RequestStatus.CANCELLED)
    inside = served[columns.chunk_owner] & window.holds(columns.chunk_ns)
    unseen = ok & (columns.chunk_counts == 0) & window.holds(columns.end_ns)
    tokens = float(tokens_by_chunk(columns)[inside].sum()) + float(np.nan_to_num(columns.output_tokens)[unseen].sum())
    return tokens / window.seconds


def tokens_by_chunk(columns: RequestColumns) -> Floats:
    """Tokens that each chunk brought; those of a request counted only at its end are spread evenly over its chunks."""
    told = np.bincount(columns.chunk_owner, weights=columns.chunk_tokens, minlength=len(columns))
    if (told[columns.chunk_counts > 0] > 0).all():
        return columns.chunk_tokens
    even = np.where(told > 0, 0.0, np.nan_to_num(columns.output_tokens) / np.maximum(columns.chunk_counts, 1))
    return np.asarray(columns.chunk_tokens + even[columns.chunk_owner])


def input_rate(columns: RequestColumns, ok: Flags, window: Window | None, level: LoadLevel) -> float | None:
    """Prompt tokens per second of OK requests whose first token came inside the window.

    Open loop: the window moved by the median TTFT.
    """
    if window is None or not ok.any() or np.isnan(columns.prompt_tokens[ok]).any():
        return None
    first = columns.first_token_ns
    seen = ok & ~np.isnan(first)
    if not level.open_loop or not seen.any():
        inside = window.holds(first)
    else:
        inside = window.holds_delayed(first, (first - columns.scheduled_ns)[seen])
    return float(columns.prompt_tokens[ok & inside].sum()) / window.seconds


def in_flight_at_sends(columns: RequestColumns) -> tuple[Floats, npt.NDArray[np.int64]]:
    """(sends in order, how many are in flight just after each); an end frees its slot for a send at the same time."""
    sent = np.sort(columns.sent_ns)
    ended = np.searchsorted(np.sort(columns.end_ns), sent, side="right")
    return sent, np.arange(1, len(sent) + 1) - ended


def peak_concurrency(columns: RequestColumns) -> int | None:
    """Most requests between their send and their end."""
    return int(in_flight_at_sends(columns)[1].max(initial=0)) if len(columns) else None


def achieved_rate(sent_ns: Floats) -> float | None:
    """(n - 1) / (last send - first send), in requests per second."""
    span = float(sent_ns.max() - sent_ns.min()) if len(sent_ns) > 1 else 0.0
    return (len(sent_ns) - 1) / span * 1e9 if span > 0 else None

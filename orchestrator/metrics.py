"""Request records of one point -> its metrics, each with its formula. Pure: numpy only.

Start of a request: its send in a closed loop, its due time in an open loop (so that a queue is not hidden).
Settled window, closed loop: from when all C slots have been filled (the C-th measured send) until the first slot
that is not filled again falls free (of n requests, end number n - C + 1). Open loop: first to last due time.
Rates look at what happened inside the window; latencies and shares at all measured requests; warm-up is left out.

Requests per second, closed loop: mean number in flight inside the window / mean latency (Little's law). To count ends
would not do: requests of one batch end together, and the window ends with the first of them. Nor would parts of
requests: every slot begins the window with a new request but ends it, more likely than not, in a long one.
Rates, open loop: the server is empty when the window begins, so what is counted is counted in the window moved by the
median time from start to event. A server that keeps up then shows the arrival rate, one that does not its own.
What cannot be known is None, never 0 or NaN.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from orchestrator.acceptance import accept_length, accept_rate, share
from orchestrator.metric_names import METRICS, Metric
from orchestrator.point_metrics import Distribution, PointMetrics
from orchestrator.point_validity import Facts, void_reasons, warnings
from orchestrator.records import RequestRecord, RequestStatus
from orchestrator.request_columns import Flags, Floats, RequestColumns
from orchestrator.speculation_proof import SpeculationAsk
from orchestrator.trial import ClientReport, LoadLevel

__all__ = ["METRICS", "Distribution", "Metric", "PointMetrics", "summarise"]

FAILURES = (
    RequestStatus.HTTP_ERROR,
    RequestStatus.SERVER_ERROR,
    RequestStatus.CONNECTION,
    RequestStatus.TRUNCATED,
    RequestStatus.TIMEOUT,
)


@dataclass(frozen=True, slots=True)
class _Window:
    """Nanoseconds."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return (self.end - self.begin) / 1e9

    def holds(self, times: Floats) -> Flags:
        return (times >= self.begin) & (times <= self.end)

    def holds_delayed(self, times: Floats, delay: Floats) -> Flags:
        """Which times lie inside the window moved by the median of `delay`, its beginning left out.

        So n events at an even pace are the n - 1 intervals that they span.
        """
        moved = float(np.median(delay))
        return (times > self.begin + moved) & (times <= self.end + moved)

    def overlap(self, begin: Floats, end: Floats) -> Floats:
        return np.asarray(np.maximum(np.minimum(end, self.end) - np.maximum(begin, self.begin), 0.0))


def summarise(
    source: Mapping[str, Any] | Sequence[RequestRecord],
    *,
    level: LoadLevel,
    client: ClientReport | None = None,
    request_limits: Mapping[str, float] | None = None,
    speculation: SpeculationAsk | None = None,
) -> PointMetrics:
    """Metrics of one point from its records, or from columns as `RequestColumns.of` takes them.

    `request_limits` bound single requests for goodput: any of `ttft_ms`, `tpot_ms`, `e2e_ms`. `speculation` is what the
    config asked for; a point whose server did otherwise is void.
    """
    columns = RequestColumns.of(source)
    ok = columns.has_status(RequestStatus.OK)
    window = _window(columns, ok, level)
    latencies = _latencies(columns, ok, level)
    counted = Counter(columns.status.tolist())
    errors = {str(s): counted[s] for s in FAILURES if counted[s]}
    failed = sum(errors.values())
    good = _good(columns, ok, latencies, request_limits)
    cached, retractions = share(columns.cached_tokens[ok], columns.prompt_tokens[ok]), _total(columns.retractions[ok])
    facts = Facts(level, counted, failed, client, columns, ok, speculation)
    return PointMetrics(
        requests_total=len(columns),
        requests_ok=int(ok.sum()),
        requests_failed=failed,
        requests_empty=counted[RequestStatus.EMPTY],
        requests_cancelled=counted[RequestStatus.CANCELLED],
        errors=errors,
        failed_share=failed / len(columns) if len(columns) else None,
        window_s=window.seconds if window else None,
        request_throughput_rps=_request_rate(columns, ok, ok, window, level),
        output_throughput_tok_s=_per_second(_tokens_inside(columns, ok, window, level), window),
        input_throughput_tok_s=_per_second(_prompt_tokens_inside(columns, ok, window, level), window),
        ttft_ms=_distribution(latencies["ttft_ms"][ok]),
        tpot_ms=_distribution(latencies["tpot_ms"][ok]),
        chunk_gap_ms=_distribution(_chunk_gaps_ms(columns, ok)),
        e2e_ms=_distribution(latencies["e2e_ms"][ok]),
        schedule_delay_ms=_distribution(_delay_ms(columns)) if level.open_loop else None,
        accept_length=accept_length(columns, ok, client),
        accept_rate=accept_rate(columns, ok, client),
        cached_share=cached,
        output_tokens_total=_total_if_all(columns.output_tokens[ok]),
        prompt_tokens_total=_total_if_all(columns.prompt_tokens[ok]),
        retractions=retractions,
        goodput_rps=None if good is None else _request_rate(columns, good, ok, window, level),
        attainment=None if good is None or not len(good) else float(good.mean()),
        peak_concurrency=client.peak_concurrency if client else _peak(columns),
        achieved_rate_rps=achieved_rate(columns.sent_ns),
        **_server_figures(client),
        void_reasons=void_reasons(facts, _median(latencies["ttft_ms"][ok])),
        warnings=warnings(facts, cached, retractions),
    )


def _server_figures(client: ClientReport | None) -> dict[str, Any]:
    """What the server said of itself while it was loaded."""
    names = ("server_running_mean", "server_running_max", "server_queued_max", "server_token_usage_max")
    return {name: getattr(client, name) if client else None for name in names}


def _window(columns: RequestColumns, ok: Flags, level: LoadLevel) -> _Window | None:
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
        window = _Window(float(columns.scheduled_ns.min()), last)
    else:
        sent = np.sort(columns.sent_ns)
        slots = min(int(level.value), len(sent))
        # Of n requests all but the last C are followed by another one in their slot, so end n - C + 1 leaves one empty.
        window = _Window(float(sent[slots - 1]), float(np.sort(columns.end_ns)[len(sent) - slots]))
    return window if window.end > window.begin else None


def _latencies(columns: RequestColumns, ok: Flags, level: LoadLevel) -> dict[str, Floats]:
    """Per request, in ms, NaN where undefined: TTFT and E2E from the start, TPOT = (end - first) / (tokens - 1).

    There is no TPOT where all tokens came at once: that the answer was held back says nothing about its making.
    """
    start = columns.scheduled_ns if level.open_loop else columns.sent_ns
    more = np.where(ok & (columns.output_tokens >= 2) & ~columns.at_once, columns.output_tokens - 1, np.nan)
    return {
        "ttft_ms": (columns.first_token_ns - start) / 1e6,
        "tpot_ms": (columns.end_ns - columns.first_token_ns) / more / 1e6,
        "e2e_ms": (columns.end_ns - start) / 1e6,
    }


def _good(
    columns: RequestColumns, ok: Flags, latencies: Mapping[str, Floats], limits: Mapping[str, float] | None
) -> Flags | None:
    """OK requests within every limit. None without limits.

    A request of one token has no TPOT to break; one of several, or of an unknown number, whose TPOT is not known has
    not kept it.
    """
    if not limits:
        return None
    good = ok.copy()
    for name, bound in limits.items():
        values = latencies[name]
        good &= (values <= bound) | ((columns.output_tokens < 2) if name == "tpot_ms" else False)
    return good


def _distribution(values: Floats) -> Distribution | None:
    values = values[~np.isnan(values)]
    if not len(values):
        return None
    p50, p90, p95, p99 = (float(p) for p in np.percentile(values, (50, 90, 95, 99)))
    return Distribution(len(values), float(values.mean()), p50, p90, p95, p99, float(values.max()))


def _median(values: Floats) -> float | None:
    values = values[~np.isnan(values)]
    return float(np.median(values)) if len(values) else None


def _delay_ms(columns: RequestColumns) -> Floats:
    return np.asarray((columns.sent_ns - columns.scheduled_ns) / 1e6)


def _request_rate(
    columns: RequestColumns, which: Flags, ok: Flags, window: _Window | None, level: LoadLevel
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


def _tokens_inside(columns: RequestColumns, ok: Flags, window: _Window | None, level: LoadLevel) -> float | None:
    """Output tokens made inside the window; None if an OK request has no count at all.

    Open loop: all tokens of the OK requests whose answer has its middle in the window moved by the median time to it.
    Counted chunk by chunk, those of the first and the last requests that lie outside would be missing.
    Closed loop: of OK requests, and of those we cut at the end, whose chunk came inside the window. Where the server
    counts only at the end, a request's tokens are spread evenly over its chunks; a request that showed no chunk has
    them at its end.
    """
    if window is None or not ok.any() or np.isnan(columns.output_tokens[ok]).any():
        return None
    if level.open_loop:
        first = np.where(np.isnan(columns.first_token_ns), columns.end_ns, columns.first_token_ns)
        middle = (first + columns.end_ns) / 2
        inside = ok & window.holds_delayed(middle, (middle - columns.scheduled_ns)[ok])
        return float(columns.output_tokens[inside].sum())
    tokens = np.nan_to_num(columns.output_tokens)
    owner = np.repeat(np.arange(len(columns)), columns.chunk_counts)
    told = np.bincount(owner, weights=columns.chunk_tokens, minlength=len(columns))
    even = np.where(told > 0, 0.0, tokens / np.maximum(columns.chunk_counts, 1))
    per_chunk = columns.chunk_tokens + even[owner]
    served = ok | columns.has_status(RequestStatus.CANCELLED)
    inside = served[owner] & window.holds(columns.chunk_ns)
    unseen = ok & (columns.chunk_counts == 0) & window.holds(columns.end_ns)
    return float(per_chunk[inside].sum() + tokens[unseen].sum())


def _prompt_tokens_inside(columns: RequestColumns, ok: Flags, window: _Window | None, level: LoadLevel) -> float | None:
    """Prompt tokens of OK requests whose first token came inside the window; open loop: moved by the median TTFT."""
    if window is None or not ok.any() or np.isnan(columns.prompt_tokens[ok]).any():
        return None
    first = columns.first_token_ns
    seen = ok & ~np.isnan(first)
    if not level.open_loop or not seen.any():
        inside = window.holds(first)
    else:
        inside = window.holds_delayed(first, (first - columns.scheduled_ns)[seen])
    return float(columns.prompt_tokens[ok & inside].sum())


def _chunk_gaps_ms(columns: RequestColumns, ok: Flags) -> Floats:
    owner = np.repeat(np.arange(len(columns)), columns.chunk_counts)
    same = (owner[1:] == owner[:-1]) & ok[owner[1:]]
    return np.asarray(np.diff(columns.chunk_ns)[same] / 1e6)


def _total(values: Floats) -> int | None:
    """Sum of what is known, None if nothing is."""
    known = values[~np.isnan(values)]
    return int(known.sum()) if len(known) else None


def _total_if_all(values: Floats) -> int | None:
    return int(values.sum()) if len(values) and not np.isnan(values).any() else None


def _per_second(count: float | None, window: _Window | None) -> float | None:
    return None if count is None or window is None else count / window.seconds


def _peak(columns: RequestColumns) -> int | None:
    """Most requests between their send and their end; an end frees the slot for a send at the same time."""
    if not len(columns):
        return None
    times = np.concatenate([columns.end_ns, columns.sent_ns])
    steps = np.repeat([-1, 1], len(columns))
    order = np.lexsort((steps, times))
    return int(np.cumsum(steps[order]).max())


def achieved_rate(sent_ns: Floats) -> float | None:
    """(n - 1) / (last send - first send), in requests per second."""
    span = float(sent_ns.max() - sent_ns.min()) if len(sent_ns) > 1 else 0.0
    return (len(sent_ns) - 1) / span * 1e9 if span > 0 else None


def latency_values(source: Mapping[str, Any], level: LoadLevel) -> dict[str, Floats]:
    """TTFT, TPOT and E2E of every OK request, in ms, NaN where undefined; from columns as `summarise` takes them."""
    columns = RequestColumns.of(source)
    ok = columns.has_status(RequestStatus.OK)
    return {name: values[ok] for name, values in _latencies(columns, ok, level).items()}

"""Request records of one point -> its metrics, each with its formula. Pure: numpy only.

Rates look at what happened inside the settled window (rates.py); latencies and shares at all measured requests; warm-up
is left out. What cannot be known is None, never 0 or NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from orchestrator.points.acceptance import accept_length, accept_rate, share
from orchestrator.points.attainment import independent_count
from orchestrator.points.audit import Lengths, lengths, unique_prompt_share
from orchestrator.points.distribution import distribution, low_tail
from orchestrator.points.point_metrics import UNSTEADY, PointMetrics, TrafficMetrics
from orchestrator.points.point_state import judge_state
from orchestrator.points.point_validity import Facts, void_reasons, warnings
from orchestrator.points.rates import (
    Window,
    achieved_rate,
    input_rate,
    output_rate,
    peak_concurrency,
    request_rate,
    settled_window,
)
from orchestrator.points.request_columns import Flags, Floats, RequestColumns
from orchestrator.points.within_run import within_run
from orchestrator.records import RequestRecord, RequestStatus
from orchestrator.sglang.speculation_proof import SpeculationAsk
from orchestrator.trial import ClientReport, LoadLevel

FAILURES = (
    RequestStatus.HTTP_ERROR,
    RequestStatus.SERVER_ERROR,
    RequestStatus.CONNECTION,
    RequestStatus.TRUNCATED,
    RequestStatus.TIMEOUT,
)


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
    window = settled_window(columns, ok, level)
    latencies = _latencies(columns, ok, level)
    counted = columns.status.counted()
    failed = sum(counted[s] for s in FAILURES)
    good = _good(columns, ok, latencies, request_limits)
    audit = lengths(columns, ok)
    state = judge_state(columns, ok, window, level, gated=bool(client and client.gated_requests))
    facts = Facts(level, counted, failed, client, columns, ok, speculation, audit, state)
    return PointMetrics(
        **_requests(counted, failed),
        window_s=window.seconds if window else None,
        request_throughput_rps=request_rate(columns, ok, ok, window, level),
        output_throughput_tok_s=output_rate(columns, ok, window, level),
        input_throughput_tok_s=input_rate(columns, ok, window, level),
        tpot_ms=distribution(latencies["tpot_ms"][ok]),
        tok_s_per_user=low_tail(1000.0 / latencies["tpot_ms"][ok]),
        chunk_gap_ms=distribution(_chunk_gaps_ms(columns, ok)),
        schedule_delay_ms=distribution(_delay_ms(columns)) if level.open_loop else None,
        accept_length=accept_length(columns, ok, client),
        accept_rate=accept_rate(columns, ok, client),
        unique_prompt_share=unique_prompt_share(columns),
        **_token_counts(columns, ok),
        **_lengths(audit),
        **_unsteady(columns, ok, good, latencies, window, level, known=state.name != "saturated"),
        peak_concurrency=peak_concurrency(columns),
        requested_rate_rps=level.value if level.kind == "rate" else None,
        achieved_rate_rps=achieved_rate(columns.sent_ns),
        **_server_figures(client),
        state=state.name,
        settle_cut_s=state.cut_s,
        state_reason=state.reason,
        by_traffic=_by_traffic(columns, ok, latencies),
        void_reasons=void_reasons(facts, _median(latencies["ttft_ms"][ok])),
        warnings=warnings(facts),
        within_run=within_run(columns, ok, latencies, window, level),
    )


def _lengths(audit: Lengths) -> dict[str, Any]:
    return {
        "output_tokens_mean": audit.output_mean,
        "output_tokens_share": audit.output_share,
        "prompt_tokens_mean": audit.prompt_mean,
        "prompt_tokens_asked_mean": audit.prompt_asked_mean,
        "prompt_tokens_error_p95": audit.prompt_error_p95,
    }


def _requests(counted: Mapping[str, int], failed: int) -> dict[str, Any]:
    """Requests by how they ended."""
    total = sum(counted.values())
    return {
        "requests_total": total,
        "requests_ok": counted[RequestStatus.OK],
        "requests_failed": failed,
        "requests_empty": counted[RequestStatus.EMPTY],
        "requests_cancelled": counted[RequestStatus.CANCELLED],
        "requests_client_limit": counted[RequestStatus.CLIENT_LIMIT],
        "errors": {str(s): counted[s] for s in (*FAILURES, RequestStatus.CLIENT_LIMIT) if counted[s]},
        "failed_share": failed / total if total else None,
    }


def _unsteady(
    columns: RequestColumns, ok: Flags, good: Flags | None, latencies: Mapping[str, Floats], window: Window | None,
    level: LoadLevel, *, known: bool,
) -> dict[str, Any]:  # fmt: skip
    """What has no value at a saturated point."""
    if not known:
        return dict.fromkeys(UNSTEADY)
    return {
        "ttft_ms": distribution(latencies["ttft_ms"][ok]),
        "e2e_ms": distribution(latencies["e2e_ms"][ok]),
        "queue_ms": distribution(columns.queue_ms[ok]),
        "goodput_rps": None if good is None else request_rate(columns, good, ok, window, level),
        "attainment": None if good is None or not len(good) else float(good.mean()),
        "attainment_n": None if good is None else independent_count(good[np.argsort(columns.sent_ns, kind="stable")]),
    }


def _token_counts(columns: RequestColumns, ok: Flags) -> dict[str, Any]:
    return {
        "cached_share": share(columns.cached_tokens[ok], columns.prompt_tokens[ok]),
        "cached_tokens_total": _total(columns.cached_tokens[ok]),
        "output_tokens_total": _total_if_all(columns.output_tokens[ok]),
        "prompt_tokens_total": _total_if_all(columns.prompt_tokens[ok]),
        "retractions": _total(columns.retractions[ok]),
    }


def _server_figures(client: ClientReport | None) -> dict[str, Any]:
    """What the server said of itself while it was loaded."""
    names = ("server_running_mean", "server_running_max", "server_queued_max", "server_token_usage_max")
    return {name: getattr(client, name) if client else None for name in names}


def _latencies(columns: RequestColumns, ok: Flags, level: LoadLevel) -> dict[str, Floats]:
    """Per request, in ms, NaN where undefined: TTFT and E2E from the start, TPOT as metric_names.py says.

    There is no TPOT where all tokens came at once: that the answer was held back says nothing about its making.
    """
    start = columns.scheduled_ns if level.open_loop else columns.sent_ns
    decoded = np.where(ok, columns.decoded_tokens, np.nan)
    return {
        "ttft_ms": (columns.first_token_ns - start) / 1e6,
        "tpot_ms": (columns.end_ns - columns.first_token_ns) / decoded / 1e6,
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


def _by_traffic(columns: RequestColumns, ok: Flags, latencies: Mapping[str, Floats]) -> dict[str, TrafficMetrics]:
    """The kinds of requests by name; empty if there is but one."""
    kinds = columns.traffic.counted()
    if len(kinds) < 2:
        return {}
    found = {}
    for name, total in sorted(kinds.items()):
        own = ok & columns.traffic.are(name)
        ttft, tpot = distribution(latencies["ttft_ms"][own]), distribution(latencies["tpot_ms"][own])
        found[name] = TrafficMetrics(
            requests_total=total,
            requests_ok=int(own.sum()),
            ttft_p50_ms=ttft.p50 if ttft else None,
            ttft_p95_ms=ttft.p95 if ttft else None,
            tpot_p50_ms=tpot.p50 if tpot else None,
            tpot_p95_ms=tpot.p95 if tpot else None,
            prompt_tokens_total=_total_if_all(columns.prompt_tokens[own]),
            output_tokens_total=_total_if_all(columns.output_tokens[own]),
        )
    return found


def _median(values: Floats) -> float | None:
    values = values[~np.isnan(values)]
    return float(np.median(values)) if len(values) else None


def _delay_ms(columns: RequestColumns) -> Floats:
    return np.asarray((columns.sent_ns - columns.scheduled_ns) / 1e6)


def _chunk_gaps_ms(columns: RequestColumns, ok: Flags) -> Floats:
    return np.asarray(np.diff(columns.chunk_ns)[columns.following_chunks(ok)] / 1e6)


def _total(values: Floats) -> int | None:
    """Sum of what is known, None if nothing is."""
    known = values[~np.isnan(values)]
    return int(known.sum()) if len(known) else None


def _total_if_all(values: Floats) -> int | None:
    return int(values.sum()) if len(values) and not np.isnan(values).any() else None


def latency_values(source: Mapping[str, Any], level: LoadLevel) -> dict[str, Floats]:
    """TTFT, TPOT and E2E of every OK request, in ms, NaN where undefined; from columns as `summarise` takes them."""
    columns = RequestColumns.of(source)
    ok = columns.has_status(RequestStatus.OK)
    return {name: values[ok] for name, values in _latencies(columns, ok, level).items()}


def chunk_gaps(source: Mapping[str, Any]) -> Floats:
    """All gaps between chunks of OK requests, in ms; from columns as `summarise` takes them."""
    columns = RequestColumns.of(source)
    return _chunk_gaps_ms(columns, columns.has_status(RequestStatus.OK))

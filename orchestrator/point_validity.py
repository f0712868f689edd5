"""Why a point must not be used, and what to know when using it. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from orchestrator.records import RequestStatus
from orchestrator.request_columns import Flags, RequestColumns
from orchestrator.speculation_proof import SpeculationAsk, speculation_doubt, speculation_fault
from orchestrator.trial import ClientReport, LoadLevel

MOST_LOOP_LAG_MS = 50.0
MOST_CPU_SHARE = 0.95
MOST_FAILED_SHARE = 0.01
# An idle connection may be closed just as it is used; a server that resets more than this is not idle but broken.
MOST_RECONNECT_SHARE = 0.1
# Of the median TTFT: a client that sends later than this measures itself.
MOST_SCHEDULE_DELAY = 0.05
# An event loop on a shared host is no more punctual; a server that answers in 20 ms must not be void for it.
SCHEDULE_DELAY_FLOOR_MS = 5.0
# A shorter point is all start-up; its CPU share says nothing.
_SHORTEST_CPU_WINDOW_S = 1.0
_WARM_CACHE_SHARE = 0.05
_FEWEST_REQUEST_TIMES = 3.0


@dataclass(frozen=True, slots=True)
class Facts:
    """What validity is judged by. `counted` has the requests by status."""

    level: LoadLevel
    counted: Mapping[str, int]
    failed: int
    client: ClientReport | None
    columns: RequestColumns
    ok: Flags
    speculation: SpeculationAsk | None = None

    @property
    def verify_passes(self) -> float | None:
        """Of the point, by its requests or else by the server's counter (of drafts, if it has that); None if unknown.

        Counts of drafts and of passes are both 0 where nothing was drafted, and only that is asked.
        """
        known = self.columns.verify_ct[~np.isnan(self.columns.verify_ct)]
        if len(known):
            return float(known.sum())
        if self.client is None:
            return None
        drafted = self.client.drafted_tokens_delta
        return drafted if drafted is not None else self.client.verify_calls_delta


def void_reasons(facts: Facts, median_ttft_ms: float | None) -> tuple[str, ...]:
    """A client that was the bottleneck, failures, a hang, or nothing measured. Empty if the point is valid."""
    total = len(facts.columns)
    reasons = []
    if not total:
        fault = facts.columns.warmup_fault
        reasons.append("no measured request was sent" + (f": warm-up ended with {fault}" if fault else ""))
    elif not facts.ok.any():
        reasons.append(f"no request of {total} succeeded")
    if total and facts.failed / total > MOST_FAILED_SHARE:
        reasons.append(f"{facts.failed} of {total} requests failed")
    if facts.speculation is not None and facts.ok.any():
        longest = float(np.nan_to_num(facts.columns.output_tokens[facts.ok]).max())
        other = speculation_fault(facts.speculation, facts.verify_passes, longest)
        reasons += [other] if other else []
    client = facts.client
    if client is not None:
        reasons += _client_faults(client)
    delay_ms = _own_delay_p99_ms(facts)
    allowed_ms = max(MOST_SCHEDULE_DELAY * (median_ttft_ms or math.inf), SCHEDULE_DELAY_FLOOR_MS)
    if delay_ms is not None and delay_ms > allowed_ms:
        reasons.append(
            f"the client sent late: p99 {delay_ms:.1f} ms, more than 5 % of the median TTFT of {median_ttft_ms:.1f} ms"
        )
    return tuple(reasons)


def _client_faults(client: ClientReport) -> list[str]:
    faults = []
    if client.stopped_by == "hung":
        faults.append("the server hung: no request made progress")
    if client.reconnects > MOST_RECONNECT_SHARE * client.requests:
        faults.append(f"the server closed the connection under {client.reconnects} of {client.requests} requests")
    if client.loop_lag_p99_ms > MOST_LOOP_LAG_MS:
        faults.append(f"the client was busy: event-loop lag p99 {client.loop_lag_p99_ms:.0f} ms")
    if client.duration_s >= _SHORTEST_CPU_WINDOW_S and client.cpu_s / client.duration_s > MOST_CPU_SHARE:
        faults.append(f"the client was the bottleneck: {client.cpu_s / client.duration_s:.0%} of a CPU")
    return faults


def _own_delay_p99_ms(facts: Facts) -> float | None:
    """The client's own lateness in an open loop; without its report, that of the records."""
    if not facts.level.open_loop or not len(facts.columns):
        return None
    if facts.client is not None:
        return facts.client.schedule_delay_p99_ms
    return float(np.percentile(facts.columns.sent_ns - facts.columns.scheduled_ns, 99)) / 1e6


def warnings(facts: Facts, cached_share: float | None, retractions: int | None) -> tuple[str, ...]:
    """Everything that limits what the numbers say."""
    columns, client = facts.columns, facts.client
    told = []
    if empty := facts.counted.get(RequestStatus.EMPTY, 0):
        told.append(f"{empty} requests ended well without a token; they count in no latency")
    if cut := facts.counted.get(RequestStatus.CANCELLED, 0):
        told.append(f"{cut} requests were cut at the end of the point; they count in no latency")
    if unknown := int(np.isnan(columns.output_tokens[facts.ok]).sum()):
        told.append(f"the server gave no token count for {unknown} requests; no token throughput")
    if held := int((facts.ok & columns.at_once & (columns.output_tokens >= 2)).sum()):
        told.append(f"{held} answers of several tokens came all at once; they count in no time per token")
    if not facts.level.open_loop and len(columns) < facts.level.value:
        told.append(f"only {len(columns)} requests for {facts.level}: the level was never reached")
    if cached_share is not None and cached_share > _WARM_CACHE_SHARE:
        told.append(f"{cached_share:.0%} of the prompt tokens came from the prefix cache")
    if retractions:
        told.append(f"the server ran out of KV cache: {retractions} retractions")
    if short := _short_window(facts):
        told.append(short)
    return (*told, *_doubts(facts), *(_client_notes(facts, client) if client is not None else ()))


def _doubts(facts: Facts) -> list[str]:
    doubt = speculation_doubt(facts.speculation, facts.verify_passes) if facts.speculation is not None else None
    return [doubt] if doubt else []


def _short_window(facts: Facts) -> str | None:
    """A closed loop that lasts but a few request times is mostly its own beginning."""
    columns = facts.columns
    if facts.level.open_loop or not facts.ok.any():
        return None
    request_s = float(np.median(columns.end_ns[facts.ok] - columns.sent_ns[facts.ok])) / 1e9
    window_s = float(columns.sent_ns.max() - columns.sent_ns.min()) / 1e9
    if window_s >= _FEWEST_REQUEST_TIMES * request_s:
        return None
    return (
        f"requests were sent for only {window_s / request_s:.1f} request times of {request_s:.1f} s: "
        f"give at least {_FEWEST_REQUEST_TIMES * request_s:.3g} s for {facts.level}"
    )


def _client_notes(facts: Facts, client: ClientReport) -> list[str]:
    notes = []
    if client.stopped_by == "cancelled":
        notes.append("the point was stopped before its end")
    if client.cache_flushed is False:
        notes.append("the prefix cache could not be flushed before the point")
    if client.reconnects:
        notes.append(f"{client.reconnects} requests went out on a new connection, their kept-alive one was closed")
    if (queued := _queued_at_server(facts.level, client)) is not None:
        notes.append(queued)
    if client.profile is not None and client.profile.startswith(("no profile", "profile cut")):
        notes.append(client.profile)
    if client.gated_requests:
        notes.append(
            f"the rate of {facts.level} was not offered: {client.gated_requests} of {len(facts.columns)} requests "
            f"waited in the client for max_concurrency; TTFT includes that wait"
        )
    return notes


def _queued_at_server(level: LoadLevel, client: ClientReport) -> str | None:
    """A closed loop whose requests were never served together: its numbers are those of a smaller batch."""
    running, queued = client.server_running_max, client.server_queued_max
    if level.open_loop or running is None or not queued or running >= level.value:
        return None
    return f"the server ran at most {running} requests at once at {level}, up to {queued} waited"

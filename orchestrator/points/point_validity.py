"""Why a point must not be used, and what to know when using it. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from orchestrator.plural import plural
from orchestrator.points.acceptance import share
from orchestrator.points.audit import NO_LENGTHS, VOID_SHORTFALL, Lengths, missing_records, rate_shortfall
from orchestrator.points.point_state import UNKNOWN, PointState
from orchestrator.points.request_columns import Flags, RequestColumns
from orchestrator.records import RequestStatus
from orchestrator.sglang.speculation_proof import SpeculationAsk, speculation_doubt, speculation_fault
from orchestrator.trial import ClientReport, LoadLevel

MOST_FAILED_SHARE = 0.01
# An idle connection may be closed just as it is used; a server that resets more than this is not idle but broken.
MOST_RECONNECT_SHARE = 0.1
# Of the median TTFT: a client that sends later than this measures itself.
MOST_SCHEDULE_DELAY = 0.05
# An event loop on a shared host is no more punctual; a server that answers in 20 ms must not be void for it.
SCHEDULE_DELAY_FLOOR_MS = 5.0


class ClientLimit(NamedTuple):
    """How much of something a load client may show before its numbers are about itself. In docs/metrics.md."""

    what: str
    most: float
    unit: str
    why: str


CLIENT_LIMITS: dict[str, ClientLimit] = {
    "loop_lag": ClientLimit(
        "event-loop lag p99", 50.0, "ms", "times of chunks are late by it: as much as a step of a busy server takes"
    ),
    "cpu": ClientLimit("CPU of each load process", 95.0, "%", "one that has no more to give sends and reads later"),
    "gc_pause": ClientLimit(
        "longest stop for garbage collection", 100.0, "ms", "all chunks that came meanwhile are late by it; twice the "
        "lag, since it is the worst of a point and not its p99",
    ),
    "backlog": ClientLimit(
        "answers unread in its sockets p99", 64.0, "KiB for each request in flight", "some seconds of a fast stream: "
        "what is read is long past",
    ),
}  # fmt: skip
MORE_PROCESSES = "spread the load over more processes (`specsweep load`: --processes) or hosts"
# One that is late and uses less of a CPU waits for it.
_LOW_CPU = 50.0
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
    audit: Lengths = NO_LENGTHS
    state: PointState = UNKNOWN

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
    unsent = facts.counted.get(RequestStatus.CLIENT_LIMIT, 0)
    if unsent > MOST_FAILED_SHARE * total:
        reasons.append(f"{unsent} of {total} requests {_NO_ROOM}: {MORE_PROCESSES}")
    if (missing := missing_records(facts.columns, facts.client)) is not None:
        reasons.append(missing)
    if facts.speculation is not None and facts.ok.any():
        longest = float(np.nan_to_num(facts.columns.output_tokens[facts.ok]).max())
        other = speculation_fault(facts.speculation, facts.verify_passes, longest)
        reasons += [other] if other else []
    if facts.client is not None:
        reasons += _server_faults(facts.client) + client_faults(facts.client)
    reasons += _lateness(facts, median_ttft_ms)
    return (*reasons, facts.state.reason) if facts.state.void else tuple(reasons)


_NO_ROOM = "found no port, file or memory left on the client and say nothing about the server"


def _server_faults(client: ClientReport) -> list[str]:
    faults = []
    if client.stopped_by == "hung":
        faults.append("the server hung: no request made progress")
    if client.reconnects > MOST_RECONNECT_SHARE * client.requests:
        faults.append(f"the server closed the connection under {client.reconnects} of {client.requests} requests")
    return faults


def client_faults(client: ClientReport) -> list[str]:
    """What of the client was more than CLIENT_LIMITS allow, with figure, limit and remedy."""
    late = _remedy(client)
    return [
        f"the client was the bottleneck: {told}{f': {MORE_PROCESSES}' if name == 'gc_pause' else late}"
        for name, told in client_excess(client).items()
    ]


def _remedy(client: ClientReport) -> str:
    """Of a client that is late: more of it, or a host where it gets the CPU that it asks for."""
    share = _cpu_share(client)
    if share is None or share >= _LOW_CPU:
        return f": {MORE_PROCESSES}"
    return (
        f", with {share:.0f} % of a CPU used: other programs keep its host's CPUs busy; leave it some, or send the "
        "load from another host"
    )


def _cpu_share(client: ClientReport) -> float | None:
    """Of one CPU, of each of its processes, in percent; None of a point that is too short to tell."""
    if client.duration_s < _SHORTEST_CPU_WINDOW_S:
        return None
    return 100 * client.cpu_s / client.duration_s / max(client.processes, 1)


def client_excess(client: ClientReport) -> dict[str, str]:
    """The figures that are above CLIENT_LIMITS, by their names there."""
    seen = {"loop_lag": client.loop_lag_p99_ms, "gc_pause": client.gc_pause_max_ms}
    if (share := _cpu_share(client)) is not None:
        seen["cpu"] = share
    if client.backlog_p99_kib is not None:
        seen["backlog"] = client.backlog_p99_kib / max(client.peak_concurrency, 1)
    return {
        name: f"{limit.what} {seen[name]:.0f} {limit.unit}, at most {limit.most:.0f} allowed"
        for name, limit in CLIENT_LIMITS.items()
        if name in seen and seen[name] > limit.most
    }


def delay_allowed_ms(median_ttft_ms: float | None) -> float:
    """How late the sends of an open loop may be at p99."""
    return max(MOST_SCHEDULE_DELAY * (median_ttft_ms or math.inf), SCHEDULE_DELAY_FLOOR_MS)


def _lateness(facts: Facts, median_ttft_ms: float | None) -> list[str]:
    """An open loop whose requests were sent later than they were due, by the client's own fault."""
    found = []
    remedy = _remedy(facts.client) if facts.client is not None else f": {MORE_PROCESSES}"
    delay_ms = _own_delay_p99_ms(facts)
    if delay_ms is not None and delay_ms > delay_allowed_ms(median_ttft_ms):
        found.append(
            f"the client sent late: p99 {delay_ms:.1f} ms, at most {delay_allowed_ms(median_ttft_ms):.1f} allowed at a "
            f"median TTFT of {median_ttft_ms:.1f} ms{remedy}"
        )
    shortfall = rate_shortfall(facts.columns, facts.level)
    if shortfall is not None and shortfall > VOID_SHORTFALL and not _gated(facts):
        found.append(
            f"the client did not offer {facts.level}: its sends came {shortfall:.1%} short of the rate that was due, "
            f"at most {VOID_SHORTFALL:.0%} allowed{remedy}"
        )
    return found


def _gated(facts: Facts) -> int:
    return facts.client.gated_requests if facts.client is not None else 0


def _own_delay_p99_ms(facts: Facts) -> float | None:
    """The client's own lateness in an open loop; without its report, that of the records."""
    if not facts.level.open_loop or not len(facts.columns):
        return None
    if facts.client is not None:
        return facts.client.schedule_delay_p99_ms
    return float(np.percentile(facts.columns.sent_ns - facts.columns.scheduled_ns, 99)) / 1e6


def warnings(facts: Facts) -> tuple[str, ...]:
    """Everything that limits what the numbers say."""
    columns, client, ok = facts.columns, facts.client, facts.ok
    cached_share = share(columns.cached_tokens[ok], columns.prompt_tokens[ok])
    retractions = float(np.nansum(columns.retractions[ok]))
    told = [facts.state.reason] if facts.state.reason and not facts.state.void else []
    if 0 < (unsent := facts.counted.get(RequestStatus.CLIENT_LIMIT, 0)) <= MOST_FAILED_SHARE * len(columns):
        told.append(f"{plural(unsent, 'request')} {_NO_ROOM}")
    if empty := facts.counted.get(RequestStatus.EMPTY, 0):
        told.append(f"{plural(empty, 'request')} ended well without a token: counted in no latency")
    if cut := facts.counted.get(RequestStatus.CANCELLED, 0):
        told.append(f"{plural(cut, 'request')} cut at the end of the point: counted in no latency")
    if unknown := int(np.isnan(columns.output_tokens[facts.ok]).sum()):
        told.append(f"the server gave no token count for {plural(unknown, 'request')}; no token throughput")
    if held := int((ok & np.isnan(columns.decoded_tokens) & (columns.output_tokens >= 2)).sum()):
        told.append(f"{plural(held, 'answer')} of several tokens came all at once: counted in no time per token")
    if not facts.level.open_loop and len(columns) < facts.level.value:
        told.append(f"only {plural(len(columns), 'request')} for {facts.level}: the level was never reached")
    if cached_share is not None and cached_share > _WARM_CACHE_SHARE:
        told.append(f"{cached_share:.0%} of the prompt tokens came from the prefix cache")
    if retractions:
        told.append(f"the server ran out of KV cache: {retractions:.0f} retractions")
    if short := _short_window(facts):
        told.append(short)
    told += facts.audit.warnings() + _short_rate(facts)
    return (*told, *_doubts(facts), *(_client_notes(facts, client) if client is not None else ()))


def _short_rate(facts: Facts) -> list[str]:
    shortfall = rate_shortfall(facts.columns, facts.level)
    if shortfall is None or (shortfall > VOID_SHORTFALL and not _gated(facts)):
        return []
    return [f"the rate of {facts.level} was not quite offered: sends came {shortfall:.1%} short of it"]


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
    notes = list(client.notes)
    if client.stopped_by == "cancelled":
        notes.append("the point was stopped before its end")
    if client.cache_flushed is False:
        notes.append("the prefix cache could not be flushed before the point")
    if client.reconnects:
        notes.append(f"{plural(client.reconnects, 'request')} sent on a new connection: the kept-alive one was closed")
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
    return f"the server ran at most {plural(running, 'request')} at once at {level}, up to {queued} waited"

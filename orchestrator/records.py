"""One record per request: raw facts with clocks, nothing derived."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RequestStatus(StrEnum):
    """How a request ended. Only OK counts in latencies and throughput; nothing is dropped."""

    OK = "ok"
    EMPTY = "empty"  # ended well, without a single token
    HTTP_ERROR = "http_error"
    SERVER_ERROR = "server_error"  # an error object inside a stream, or finish_reason abort
    CONNECTION = "connection"
    CLIENT_LIMIT = "client_limit"  # we had no port, file or memory left: says nothing about the server
    TRUNCATED = "truncated"  # the stream was cut before its end mark
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"  # by us, at the end of the window or of the run


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """Times are nanoseconds on the load actor's monotonic clock since the point's start.

    `chunk_ns[i]` is when the i-th token-bearing chunk came and `chunk_tokens[i]` how many new tokens it brought
    by the server's count (0 where the API does not tell). Token counts are the server's; None if it never said.
    `correct_drafts` / `verify_ct` are SGLang's per-request speculation counters. `traffic` names the kind of request;
    requests of one session share `session_index` and have a `turn`, from 0. `asked_input_tokens` is how long the prompt
    was meant to be, `queue_ms` how long the server says that it let the request wait.
    """

    request_index: int
    warmup: bool
    scheduled_ns: int
    sent_ns: int
    first_token_ns: int | None
    end_ns: int
    chunk_ns: tuple[int, ...]
    chunk_tokens: tuple[int, ...]
    in_flight: int
    requested_output_tokens: int
    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    verify_ct: int | None
    correct_drafts: int | None
    proposed_drafts: int | None
    retractions: int | None
    finish_reason: str | None
    status: RequestStatus
    http_status: int | None
    error: str | None
    prompt_hash: str
    traffic: str = ""
    session_index: int | None = None
    turn: int = 0
    asked_input_tokens: int | None = None
    queue_ms: float | None = None

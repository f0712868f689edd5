"""One request on its way, from the decision to send it to its record."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from actors.wire.answer import Answer
from actors.workloads.workload import Prompt
from orchestrator.records import RequestRecord, RequestStatus


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be sent. `scheduled_ns` is on this process's monotonic clock."""

    index: int
    warmup: bool
    scheduled_ns: int
    prompt: Prompt
    output_tokens: int
    traffic: str = ""
    session_index: int | None = None
    turn: int = 0
    asked_input_tokens: int | None = None


class Flight:
    """A request on its way: filled by the client, ended early by `cancel`, read out by `record`.

    `interrupt` ends whatever the client waits for; None while it waits for nothing.
    """

    __slots__ = ("answer", "cancelled", "end_ns", "error", "http_status", "in_flight", "interrupt", "request",
                 "sent_ns", "status")  # fmt: skip

    def __init__(self, request: Request, *, native: bool, in_flight: int = 1, keep_text: bool = False) -> None:
        self.request = request
        self.answer = Answer(native=native, keep_text=keep_text)
        self.in_flight = in_flight
        self.sent_ns = self.end_ns = time.monotonic_ns()
        self.http_status: int | None = None
        self.status = RequestStatus.CANCELLED
        self.error: str | None = None
        self.interrupt: Callable[[], None] | None = None
        self.cancelled: tuple[RequestStatus, str] | None = None

    def cancel(self, status: RequestStatus, reason: str) -> None:
        """End the request now, whatever it waits for. Its record says why."""
        self.cancelled = (status, reason)
        if self.interrupt is not None:
            self.interrupt()

    def expire(self, limit_s: float, awaited: str) -> None:
        """The time is up, either the request's own or because of `cancel`."""
        if self.answer.done:
            self.conclude()
            return
        late = (RequestStatus.TIMEOUT, f"TimeoutError: no progress for {limit_s:g} s while waiting for {awaited}")
        self.fail(*(self.cancelled or late))

    def fail(self, status: RequestStatus, error: str) -> None:
        self.status, self.error, self.end_ns = status, error, time.monotonic_ns()

    def conclude(self) -> None:
        """The stream was read to its end: judge it."""
        answer = self.answer
        self.end_ns = time.monotonic_ns()
        if answer.error is not None:
            self.status, self.error = RequestStatus.SERVER_ERROR, answer.error
        elif not answer.complete:
            self.status, self.error = RequestStatus.TRUNCATED, "the stream ended without its end mark"
        elif not answer.output_tokens and not answer.chunk_ns:
            self.status = RequestStatus.EMPTY
        else:
            self.status = RequestStatus.OK
            if answer.chunk_ns:
                self.end_ns = answer.chunk_ns[-1]

    def record(self, origin_ns: int) -> RequestRecord:
        """The finished request, with times since `origin_ns`."""
        request, answer = self.request, self.answer
        chunks = tuple([at - origin_ns for at in answer.chunk_ns])
        return RequestRecord(
            request_index=request.index,
            warmup=request.warmup,
            scheduled_ns=request.scheduled_ns - origin_ns,
            sent_ns=self.sent_ns - origin_ns,
            first_token_ns=chunks[0] if chunks else None,
            end_ns=self.end_ns - origin_ns,
            chunk_ns=chunks,
            chunk_tokens=tuple(answer.chunk_tokens),
            in_flight=self.in_flight,
            requested_output_tokens=request.output_tokens,
            prompt_tokens=answer.prompt_tokens,
            cached_tokens=answer.cached_tokens,
            output_tokens=answer.output_tokens,
            verify_ct=answer.verify_ct,
            correct_drafts=answer.correct_drafts,
            proposed_drafts=answer.proposed_drafts,
            retractions=answer.retractions,
            finish_reason=answer.finish_reason,
            status=self.status,
            http_status=self.http_status,
            error=self.error,
            prompt_hash=request.prompt.digest,
            traffic=request.traffic,
            session_index=request.session_index,
            turn=request.turn,
            asked_input_tokens=request.asked_input_tokens,
            queue_ms=answer.queue_ms,
        )

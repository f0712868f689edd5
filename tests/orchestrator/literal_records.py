"""Request records with literal times in ms, for tests of the metrics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from orchestrator.records import RequestRecord, RequestStatus
from orchestrator.trial import ClientReport, LoadLevel

C1 = LoadLevel("concurrency", 1)
CLIENT = ClientReport("p", 10.0, 1.0, 2.0, 1.0, 4, 100, "requests")


def client_of(requests: int, **changes: Any) -> ClientReport:
    """A client that had no trouble and sent so many measured requests."""
    return replace(CLIENT, requests=requests, **changes)


def ms(*times: float) -> tuple[int, ...]:
    return tuple(round(t * 1e6) for t in times)


def request(
    sent: float, chunks: list[float], tokens: list[int] | None = None, *, output: int | None = -1, **more: Any
) -> RequestRecord:
    """An OK request; times in ms, `tokens` per chunk (default one each), `output` as the server counted it."""
    tokens = [1] * len(chunks) if tokens is None else tokens
    chunk_ns = ms(*chunks)
    record = RequestRecord(
        request_index=0,
        warmup=False,
        scheduled_ns=ms(sent)[0],
        sent_ns=ms(sent)[0],
        first_token_ns=chunk_ns[0] if chunk_ns else None,
        end_ns=chunk_ns[-1] if chunk_ns else ms(sent)[0],
        chunk_ns=chunk_ns,
        chunk_tokens=tuple(tokens),
        in_flight=1,
        requested_output_tokens=sum(tokens) or 4,
        prompt_tokens=10,
        cached_tokens=0,
        output_tokens=sum(tokens) if output == -1 else output,
        verify_ct=None,
        correct_drafts=None,
        proposed_drafts=None,
        retractions=0,
        finish_reason="length",
        status=RequestStatus.OK,
        http_status=200,
        error=None,
        prompt_hash="",
    )
    return replace(record, **more)


def failed(sent: float, end: float, status: RequestStatus = RequestStatus.HTTP_ERROR) -> RequestRecord:
    bare = request(sent, [], output=None, prompt_tokens=None, cached_tokens=None, retractions=None)
    return replace(bare, end_ns=ms(end)[0], status=status)

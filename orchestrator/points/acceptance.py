"""How much of what a server drafted it accepted, from its requests or else from its counters. Pure: numpy only."""

from __future__ import annotations

import numpy as np

from orchestrator.points.request_columns import Flags, Floats, RequestColumns
from orchestrator.trial import ClientReport


def accept_length(columns: RequestColumns, ok: Flags, client: ClientReport | None) -> float | None:
    """1 + sum(correct drafts) / sum(verify passes) over OK requests.

    Where they tell of passes only, sum(tokens - 1) / sum(passes): the first token of a request comes from prefill.
    Where they tell nothing, from the server's counters over the drained point: 1 + accepted / verify steps, or where
    accepted tokens are not counted (tokens - requests) / verify calls.
    None without speculation. A server that drafts only now and then counts no step without a draft.
    """
    known = ok & ~np.isnan(columns.verify_ct) & ~np.isnan(columns.correct_drafts)
    verified = float(columns.verify_ct[known].sum())
    if verified > 0:
        return 1.0 + float(columns.correct_drafts[known].sum()) / verified
    passed = ok & (columns.verify_ct > 0) & ~np.isnan(columns.output_tokens)
    if passed.any():
        return float((columns.output_tokens[passed] - 1).sum()) / float(columns.verify_ct[passed].sum())
    if client is None or not client.verify_calls_delta:
        return None
    if client.accepted_tokens_delta is not None:
        return 1.0 + client.accepted_tokens_delta / client.verify_calls_delta
    if client.generation_tokens_delta is None or client.requests_delta is None:
        return None
    return (client.generation_tokens_delta - client.requests_delta) / client.verify_calls_delta


def accept_rate(columns: RequestColumns, ok: Flags, client: ClientReport | None) -> float | None:
    """Correct / proposed drafts over OK requests; without these, from the server's counters over the point."""
    by_request = share(columns.correct_drafts[ok], columns.proposed_drafts[ok])
    if by_request is not None or client is None or not client.drafted_tokens_delta:
        return by_request
    return None if client.accepted_tokens_delta is None else client.accepted_tokens_delta / client.drafted_tokens_delta


def share(part: Floats, whole: Floats) -> float | None:
    """sum(part) / sum(whole) over the requests that have both."""
    known = ~np.isnan(part) & ~np.isnan(whole)
    total = float(whole[known].sum())
    return float(part[known].sum()) / total if total > 0 else None

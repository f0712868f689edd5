"""Whether a point's load was the one asked for: lengths, prompts, rate, and that no request is missing. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orchestrator.points.acceptance import share
from orchestrator.points.distribution import supported
from orchestrator.points.request_columns import Flags, Floats, RequestColumns
from orchestrator.records import RequestStatus
from orchestrator.trial import ClientReport, LoadLevel

# Prompts of a mean length further from the asked one, or answers this much shorter, are another workload.
_PROMPT_ERROR = 0.1
_SHORT_ANSWERS = 0.95
_WARN_SHORTFALL, VOID_SHORTFALL = 0.01, 0.05
# Sends that are late by less than this in all are a matter of timers, not of the rate.
_LATE_S = 0.05


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of OK requests: what came, and what was asked for; None where one of them is not known."""

    prompt_mean: float | None
    prompt_asked_mean: float | None
    prompt_error_p95: float | None
    output_mean: float | None
    output_share: float | None

    def warnings(self) -> list[str]:
        told = []
        if self.prompt_mean and self.prompt_asked_mean:
            ratio = self.prompt_mean / self.prompt_asked_mean
            if abs(ratio - 1) > _PROMPT_ERROR:
                told.append(
                    f"prompts had {self.prompt_mean:.0f} tokens on average, {self.prompt_asked_mean:.0f} were asked for"
                )
        if self.output_share is not None and self.output_share < _SHORT_ANSWERS:
            told.append(
                f"answers had {self.output_share:.0%} of the tokens asked for: what stops early differs by config and "
                f"model; with ignore_eos the server did not heed it"
            )
        return told


NO_LENGTHS = Lengths(None, None, None, None, None)


def lengths(columns: RequestColumns, ok: Flags) -> Lengths:
    """The audit of the OK requests."""
    prompt, asked = columns.prompt_tokens[ok], columns.asked_input_tokens[ok]
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.where(asked > 0, np.abs(prompt - asked) / asked, np.nan)
    return Lengths(
        _mean(prompt),
        _mean(asked),
        supported(error, 95),
        _mean(columns.output_tokens[ok]),
        share(columns.output_tokens[ok], columns.requested_output_tokens[ok]),
    )


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if len(values) and not np.isnan(values).any() else None


def unique_prompt_share(columns: RequestColumns) -> float | None:
    """Different prompts / requests; None where prompts have no hash."""
    if not len(columns) or (columns.prompts < 0).any():
        return None
    return len(np.unique(columns.prompts)) / len(columns)


def missing_records(columns: RequestColumns, client: ClientReport | None) -> str | None:
    """Why records and the client's own count do not agree: sent = ok + empty + failed + client limit + cut off."""
    counted = columns.status.counted()
    unknown = [f"{n} {status!r}" for status, n in sorted(counted.items()) if status not in set(RequestStatus)]
    if unknown:
        return f"requests ended in a way that this release does not know: {', '.join(unknown)}"
    if client is None or client.requests == len(columns):
        return None
    told = " + ".join(f"{n} {status}" for status, n in sorted(counted.items())) or "none"
    return f"{client.requests} requests were sent, but there are records of {len(columns)} ({told})"


def rate_shortfall(columns: RequestColumns, level: LoadLevel) -> float | None:
    """By which share the sends of an open loop fell behind their due times; None if by nothing that matters.

    Against the due times, not against the rate: those of Poisson arrivals, ramps and steps are not evenly spread.
    """
    if not level.open_loop or len(columns) < 2:
        return None
    due = float(columns.scheduled_ns.max() - columns.scheduled_ns.min()) / 1e9
    sent = float(columns.sent_ns.max() - columns.sent_ns.min()) / 1e9
    if due <= 0 or sent - due <= _LATE_S or 1 - due / sent <= _WARN_SHORTFALL:
        return None
    return 1 - due / sent

"""What the servers of a config told of their memory and limits, over all their starts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.sglang.server_account import account_of


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The least of all starts: tokens of the KV cache, requests that run at once, GiB free on a GPU once all graphs
    were captured. `why_limited`: why fewer requests run than were asked for. None or empty where no server told.
    """

    kv_tokens: int | None = None
    running_limit: int | None = None
    free_gib: float | None = None
    why_limited: str = ""

    def as_json(self) -> dict[str, Any]:
        names = ("kv_tokens", "running_limit", "free_gib", "why_limited")
        return {name: getattr(self, name) for name in names}


def server_facts(trials: Iterable[Mapping[str, Any]]) -> ServerFacts:
    """From the rows of `trials` of one config; each is judged by the settings that it was asked for."""
    tokens: list[int] = []
    limits: list[int] = []
    free: list[float] = []
    why = ""
    for trial in trials:
        account = account_of(trial)
        if trial["outcome"] == "infeasible" or account is None:
            continue
        told = [phase["free_gib"] for phase in trial["phases"] or () if phase["free_gib"] is not None]
        free += told[-1:]
        if account.kv_tokens is not None:
            tokens.append(account.kv_tokens)
        if account.running_requests is not None:
            limits.append(account.running_requests)
        why = why or next((c.why for c in account.changes if c.name == "max_running_requests"), "")
    return ServerFacts(min(tokens, default=None), min(limits, default=None), min(free, default=None), why)

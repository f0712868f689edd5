"""What the servers of a config told of their memory and limits, over all their starts. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.resolved_settings import effective_running_requests, setting_changes


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


def server_facts(settings: Mapping[str, Any], trials: Iterable[Mapping[str, Any]]) -> ServerFacts:
    """From the rows of `trials` of one config."""
    tokens: list[int] = []
    limits: list[int] = []
    free: list[float] = []
    why = ""
    for trial in trials:
        if trial["outcome"] == "infeasible" or not trial["resolved_json"]:
            continue
        account = json.loads(trial["resolved_json"])
        told = [phase["free_gib"] for phase in trial["phases"] or () if phase["free_gib"] is not None]
        free += told[-1:]
        if isinstance(account.get("max_total_num_tokens"), int):
            tokens.append(account["max_total_num_tokens"])
        running = effective_running_requests(account) or account.get("max_running_requests")
        if isinstance(running, int):
            limits.append(running)
        changes = setting_changes(settings, account)
        why = why or next((c.why for c in changes if c.name == "max_running_requests"), "")
    return ServerFacts(min(tokens, default=None), min(limits, default=None), min(free, default=None), why)

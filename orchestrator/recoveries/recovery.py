"""What to do after a server died: a pure policy over the tables of `remedies`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.outcome import Label
from orchestrator.recoveries.failed_lineage import Change, Situation
from orchestrator.recoveries.remedies import REMEDIES, Kind

# Starts of one trial with the same settings; a second one only where the label says that it can help.
MOST_STARTS = 2


@dataclass(frozen=True, slots=True)
class Repair:
    """Other settings are worth a start: the changes, each with the numbers it was computed from."""

    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Again:
    """The same settings once more, in one of the ways of `Kind` (clean, elsewhere, alone)."""

    how: Kind


@dataclass(frozen=True, slots=True)
class NoMove:
    """Nothing is tried, and why. What the user may do is in the diagnosis's advice."""

    reason: str


Decision = Repair | Again | NoMove


@dataclass(frozen=True, slots=True)
class Rights:
    """How far the policy may go: repairs left to this lineage, unchanged starts so far, settings the sweep varies.

    `refused` says whether settings must not be tried: they failed already, or the release refuses them.
    """

    tries_left: int
    starts: int
    refused: Callable[[Mapping[str, Any]], bool]
    swept: frozenset[str] = frozenset()


def decide(now: Situation, rights: Rights) -> Decision:
    """The next step for a config whose server died. Terminates: tries are bounded and no settings come twice."""
    remedy = REMEDIES[now.failed.label]
    if remedy.kind is Kind.NOTHING:
        return NoMove(f"{now.failed.label} is no matter of memory settings or luck")
    if remedy.kind is not Kind.REPAIR:
        if rights.starts >= MOST_STARTS:
            return NoMove(f"it was tried {rights.starts} times")
        return Again(remedy.kind)
    fault = _out_of_reach(now)
    if fault is not None:
        return NoMove(fault)
    if rights.tries_left < 1:
        return NoMove("all tries of recovery.tries are used")
    deaths = sum(t.failed.label is now.failed.label for t in now.tries)
    # What the sweep varies is left alone at first, but not once that alone did not help.
    widths = (now.may_change - rights.swept, now.may_change) if not deaths else (now.may_change,)
    for move in remedy.moves_after(deaths):
        for allowed in widths:
            changes = move.changes(replace(now, may_change=allowed))
            if changes and not rights.refused(apply_changes(now.settings, changes)):
                return Repair(changes)
    return NoMove("no change that recovery.may_change allows is left to try")


def _out_of_reach(now: Situation) -> str | None:
    """A cap that the user set below one request is the cause, and not ours to lift."""
    cap, needs = now.settings.get("max_total_tokens"), now.needs.tokens
    if now.failed.label is Label.KV_BUDGET and cap is not None and cap < (needs or 1):
        return f"max_total_tokens={cap} holds not one request of the load"
    return None


def apply_changes(settings: Mapping[str, Any], changes: tuple[Change, ...]) -> dict[str, Any]:
    """The settings with the changes made."""
    return {**settings, **{change.name: change.now for change in changes}}


def repair_text(changes: tuple[Change, ...]) -> str:
    """`mem_fraction_static 0.7 -> 0.62 (5.20 GiB short ...); ...`, for remarks and progress."""
    return "; ".join(f"{c.name} {'open' if c.was is None else c.was} -> {c.now} ({c.why})" for c in changes)

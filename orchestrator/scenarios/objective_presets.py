"""Objectives by the kind of use: `preset: agentic` and an ordinary objective comes of the workload's levels. Pure.

docs/objectives.md has each of them in full.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.objectives.expression import level_text
from orchestrator.trial import LoadLevel

SPEED, USER_SPEED = "output_throughput_tok_s", "tok_s_per_user_p50"
# Chat without limits per request: an answer begins within a second and is written faster than anyone reads.
CHAT_LIMITS = ("ttft_p95_ms <= 1000", "tpot_p95_ms <= 50")
# What decides when speed does not: memory that is left over, then the plainer config.
_LAST = ({"maximize": "free_gib_after_capture"}, {"maximize": "simplicity"})


@dataclass(frozen=True, slots=True)
class Levels:
    """The load levels of a workload, of one kind and ascending, and what else of it presets look at."""

    levels: Sequence[LoadLevel]
    slo: bool = False
    max_rate: bool = False

    @property
    def speed(self) -> str:
        """What is fast: in an open loop the server's throughput is that of the arrivals, so a user's speed counts."""
        return USER_SPEED if self.levels[0].open_loop else SPEED


def _at(level: LoadLevel) -> dict[str, Any]:
    return {level.kind: int(level.value) if level.kind == "concurrency" else level.value}


def _agentic(of: Levels) -> dict[str, Any]:
    """Few requests at once, each waited for: speed at the lowest level, then at the next."""
    following = [{"maximize": of.speed, "at": _at(level)} for level in of.levels[1:2]]
    return {"maximize": of.speed, "at": _at(of.levels[0]), "tie_breakers": [*following, *_LAST]}


def _chat(of: Levels) -> dict[str, Any]:
    """As many users as possible who are all served well."""
    if of.max_rate:
        return {"maximize": "max_rate_rps", "tie_breakers": list(_LAST)}
    middle = len(of.levels) // 2
    at = _at(of.levels[middle])
    further = [{"maximize": of.speed, "at": _at(level)} for level in of.levels[middle + 1 : middle + 2]]
    ties = [{"maximize": USER_SPEED, "at": at}, *further, *_LAST]
    if of.slo:
        return {"maximize": "goodput_rps", "at": at, "limits": ["attainment >= 0.9"], "tie_breakers": ties}
    return {"maximize": SPEED, "at": at, "limits": list(CHAT_LIMITS), "tie_breakers": ties}


def _batch(of: Levels) -> dict[str, Any]:
    """Nobody waits for one answer: all that the server gives at the highest level, then at the one below."""
    before = [{"maximize": SPEED, "at": _at(level)} for level in of.levels[:-1][-1:]]
    return {"maximize": SPEED, "at": _at(of.levels[-1]), "tie_breakers": [*before, *_LAST]}


def _balanced(of: Levels) -> dict[str, Any]:
    """Every level counts alike, by the geometric mean."""
    mean = ", ".join(f"{of.speed} @ {level_text(level)}" for level in of.levels)
    return {
        "maximize": f"geomean({mean})",
        "at": _at(of.levels[-1]),
        "tie_breakers": [{"maximize": of.speed, "at": _at(of.levels[-1])}, *_LAST],
    }


PRESETS: Mapping[str, Callable[[Levels], dict[str, Any]]] = {
    "agentic": _agentic,
    "chat": _chat,
    "batch": _batch,
    "balanced": _balanced,
}


def preset_keys(preset: str, of: Levels) -> dict[str, Any] | None:
    """The keys of an objective that a preset stands for; None for an unknown one and where there is no level."""
    if preset not in PRESETS or not (of.levels or (preset == "chat" and of.max_rate)):
        return None
    return PRESETS[preset](of)


def preset_fault(preset: str, workload: str) -> str:
    """Why a known preset stands for nothing at a workload."""
    return (
        f"is '{preset}', which looks at fixed load levels, but workload '{workload}' has none: give it concurrency or "
        "rates, or write the objective out"
    )

"""What each further step of speculation brought: value and accepted tokens by depth, all else equal. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.objectives.level_table import LevelTable
from orchestrator.scenarios.config_label import FOLLOWING
from orchestrator.trial import LoadLevel, Repaired


@dataclass(frozen=True, slots=True)
class DepthPoint:
    """`gain_per_step`: how much better each step from the depth before made it, as a share; None for the first."""

    depth: int
    config_id: str
    value: float
    accept_length: float | None
    gain_per_step: float | None


@dataclass(frozen=True, slots=True)
class DepthCurve:
    """At one load level, shallow first. `enough`: the least depth within the margin of the best one. `is_flat_after`:
    all deeper than the best are within it too.
    """

    level: LoadLevel
    points: tuple[DepthPoint, ...]
    best: int
    enough: int
    is_flat_after: bool


def depth_curves(
    config_id: str, passing: Sequence[str], settings: Mapping[str, Mapping[str, Any]],
    repairs: Mapping[str, Repaired], table: LevelTable, margin: float, depth_names: tuple[str, ...],
) -> tuple[DepthCurve, ...]:  # fmt: skip
    """One for each level at which two or more depths were measured that differ from a config in nothing else.

    A repaired config counts as the one that was asked: it differs in memory settings as well.
    """

    def asked(other: str) -> Mapping[str, Any]:
        origin = repairs[other].asked_id if other in repairs else other
        return settings.get(origin, settings[other])

    own = _rest(asked(config_id), depth_names)
    alike = {_depth(asked(c), depth_names): c for c in reversed(passing) if _alike(own, asked(c), depth_names)}
    alike[_depth(asked(config_id), depth_names)] = config_id
    curves = []
    for level in table.levels:
        known = [(d, alike[d], v) for d in sorted(alike) if (v := table.mean(alike[d], level)) is not None]
        if len(known) > 1:
            curves.append(_curve(level, known, table, margin))
    return tuple(curves)


def _curve(level: LoadLevel, known: list[tuple[int, str, float]], table: LevelTable, margin: float) -> DepthCurve:
    points = []
    for i, (depth, config_id, value) in enumerate(known):
        gain = None
        if i:
            before_depth, _, before = known[i - 1]
            gain = (1 + table.better(value, before)) ** (1 / (depth - before_depth)) - 1
        accepted = table.mean(config_id, level, "accept_length") if depth else None
        points.append(DepthPoint(depth, config_id, value, accepted, gain))
    best = max(points, key=lambda p: p.value if table.maximize else -p.value)
    enough = next(p for p in points if table.better(best.value, p.value) <= margin)
    deeper = [p.value for p in points if p.depth > best.depth]
    flat = all(table.better(best.value, value) <= margin for value in deeper)
    return DepthCurve(level, tuple(points), best.depth, enough.depth, flat)


def _depth(settings: Mapping[str, Any], names: tuple[str, ...]) -> int:
    return max((int(settings.get(name) or 0) for name in names), default=0)


def _rest(settings: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """All but the depth and what follows from it; a tree of drafts keeps its width and size."""
    is_tree = (settings.get("speculative_eagle_topk") or 1) > 1
    implied = FOLLOWING - {"speculative_eagle_topk", "speculative_num_draft_tokens"} if is_tree else FOLLOWING
    return {name: value for name, value in settings.items() if name not in implied and name not in names}


def _alike(own: Mapping[str, Any], other: Mapping[str, Any], names: tuple[str, ...]) -> bool:
    rest = _rest(other, names)
    if _depth(other, names) == 0:  # without speculation there is no tree either
        own, rest = _without_speculation(own), _without_speculation(rest)
    return own == rest


def _without_speculation(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if not name.startswith("speculative_")}

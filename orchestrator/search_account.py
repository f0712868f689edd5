"""What a ranking says of the search behind it: points that were spared, configs that were not started. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.aim import PointValue
from orchestrator.search import RACE_OVER
from orchestrator.trial import LoadLevel


def spared_values(spared: Iterable[Mapping[str, Any]], trial_ids: Iterable[str]) -> list[PointValue]:
    """The points of these trials that were not measured, each with the reason. `spared`: events of the journal."""
    known = set(trial_ids)
    return [
        PointValue(
            config_id=told["config_id"],
            workload=told["workload"],
            level=LoadLevel(told["level_kind"], told["level"]),
            repeat=told["repeat"],
            metrics={},
            trial_id=told["trial_id"],
            spared=told["reason"],
        )
        for told in spared
        if told["trial_id"] in known
    ]


def left_behind(
    steps: Iterable[Mapping[str, Any]], objective: str, host_class: str, asked_as: Mapping[str, Iterable[str]]
) -> dict[str, str]:
    """Config id -> why the search went on without it, for one objective. `asked_as`: by the id of what served, all that
    it stands for; it is out if all of these are.
    """
    dropped: dict[str, str] = {}
    at_end: dict[str, str] = {}
    for step in steps:
        if step.get("host_class", "") == host_class and step.get("objective") == objective:
            if step["name"] == RACE_OVER:  # a result that came late may have changed the end
                at_end = step["dropped"]
            else:
                dropped |= step["dropped"]
    dropped |= at_end
    found = {}
    for config_id, asked in asked_as.items():
        why = [dropped.get(one) for one in asked]
        if why and None not in why:
            found[config_id] = str(why[0])
    return found


def search_notes(method: str, steps: Iterable[Mapping[str, Any]], configs: int, started: int) -> tuple[str, ...]:
    """What the search decided, in order; nothing for a grid. `started` of `configs` had a server."""
    if method == "grid":
        return ()
    left = configs - started
    told = [f"search, {step['host_class']}: {step['text']}" if step.get("host_class") else f"search: {step['text']}"
            for step in steps]  # fmt: skip
    out = f"search: {left} of {configs} configs were not started; ranking.json has why (`search`)"
    return (*told, *([out] if left else []))

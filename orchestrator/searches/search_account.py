"""What a ranking says of the search behind it: points that were spared, configs that were not started. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from orchestrator.objectives.aim import PointValue
from orchestrator.plural import plural
from orchestrator.searches.search import RACE_OVER
from orchestrator.trial import LoadLevel

# Steps of which a search may make hundreds, by name; so many of each are told.
_ALIKE = {"inferred": "died like this", "refused": "were refused"}
_MOST_ALIKE = 3


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


def search_notes(
    method: str, steps: Sequence[Mapping[str, Any]], configs: int, started: int, *, done: bool = True
) -> tuple[str, ...]:
    """What the search decided, in order; nothing for a grid. `started` of `configs` had a server.
    Not `done` is a search that was stopped."""
    if method == "grid":
        return ()
    left, told = configs - started, list[str]()
    seen: Counter[tuple[str, str]] = Counter()
    for step in steps:
        host_class = step.get("host_class", "")
        kind = (host_class, step["name"])
        seen[kind] += 1
        if step["name"] not in _ALIKE or seen[kind] <= _MOST_ALIKE:
            told.append(f"search{f', {host_class}' if host_class else ''}: {step['text']}")
    for (host_class, name), count in seen.items():
        if name in _ALIKE and count > _MOST_ALIKE:
            on = f", {host_class}" if host_class else ""
            told.append(f"search{on}: {plural(count - _MOST_ALIKE, 'more config')} {_ALIKE[name]}")
    known = {c for step in steps for c in step["dropped"] if not step.get("objective")}
    why = "; ranking.json has why (`search`)" if known else ""
    if not done and method != "pairs":  # of a night that is told with its verdict
        told.append(
            "search: it is not done: starts that are missing may still change the order (specsweep run --resume)"
        )
        never = f"; {min(left, len(known))} of the others will not be{why}" if known else ""
        return (*told, *([f"search: {started} of {configs} configs were started so far{never}"] if left else []))
    out = f"search: {left} of {configs} configs were not started{why}"
    # A space has no list of configs, of which some were not started.
    return (*told, *([out] if left and method != "optuna" else []))

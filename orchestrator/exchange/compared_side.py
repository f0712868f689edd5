"""One of two things that are compared: a run, or the results of another load client. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from orchestrator.objectives.aim import PointValue
from orchestrator.points.peer_point import ImportedPoint

State = Literal["served", "died", "failed", "not run"]
How = Literal["same settings", "same server", "the only configs", "the same otherwise", "by name", "all pairs"]
# Prompts and answers this much longer or shorter are another workload.
SHAPE_MARGIN = 0.10


@dataclass(frozen=True, slots=True)
class ComparedConfig:
    """`state`: what its starts came to; `death`: label, phase and evidence of the last that did not serve; `deaths`: of
    how many of its `starts` it died by nature.

    `kv_tokens` and `start_s` have a value for each start that told one, the latter with the start's host. `telling` are
    kernels and memory layout as its servers resolved them; `identities` hashes of all by which they compute.
    """

    config_id: str
    label: str
    settings: Mapping[str, Any]
    state: State = "served"
    death: str = ""
    starts: int = 0
    deaths: int = 0
    kv_tokens: tuple[float, ...] = ()
    start_s: tuple[tuple[str, float], ...] = ()
    telling: Mapping[str, str] = field(default_factory=dict)
    identities: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Side:
    """`kind`: the engine of a run (sglang, emulator, command, attach), or the client of a file. `emulated` is None
    where nobody can tell. `shapes`: mean tokens of prompts and answers by workload, where points are matched by them.
    """

    name: str
    kind: str
    is_peer: bool
    emulated: bool | None
    configs: Mapping[str, ComparedConfig]
    values: Sequence[PointValue]
    facts: Mapping[str, str] = field(default_factory=dict)
    scenario: Mapping[str, Any] = field(default_factory=dict)
    shapes: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Match:
    """A config of each side. `how` says why they are taken for the same."""

    first: str
    second: str
    how: How


def side_of_points(name: str, points: Sequence[ImportedPoint]) -> Side:
    """The results of another client. Points of one name are repeats of one config."""
    values, configs = [], {}
    shapes: dict[str, tuple[float, float]] = {}
    skipped = []
    for i, point in enumerate(points):
        prompt, output = point.metrics.get("prompt_tokens_mean"), point.metrics.get("output_tokens_mean")
        if point.load is None or not prompt or not output:
            lacks = "load level (all requests at once)" if point.load is None else "lengths of prompts and answers"
            skipped.append(f"{name}: result {point.line} is not compared: it tells no {lacks}")
            continue
        workload = _near(shapes, (prompt, output)) or _shape_name(prompt, output)
        shapes.setdefault(workload, (prompt, output))  # means of one workload vary from point to point
        configs[point.name] = ComparedConfig(point.name, point.name, {})
        values.append(PointValue(point.name, workload, point.load, 0, point.metrics, trial_id=f"{point.line}-{i}"))
    kinds = ", ".join(dict.fromkeys(point.kind for point in points))
    notes = [*skipped, *(f"{name} ({kinds}): {note}" for note in dict.fromkeys(n for p in points for n in p.notes))]
    return Side(name, kinds, True, None, configs, values, {}, {}, shapes, tuple(notes))


def _shape_name(prompt: float, output: float) -> str:
    return f"{prompt:.0f} tokens in, {output:.0f} out"


def shape_pairs(first: Side, second: Side) -> dict[str, str]:
    """Workload of the first -> the workload of the second whose prompts and answers are nearest in length."""
    pairs = {}
    for name, shape in first.shapes.items():
        near = _near(second.shapes, shape)
        if near is not None:
            pairs[name] = near
    return pairs


def _near(shapes: Mapping[str, tuple[float, float]], shape: tuple[float, float]) -> str | None:
    """The nearest of these, if it is near enough to be the same workload."""
    near = min(shapes, key=lambda other: _distance(shape, shapes[other]), default=None)
    return near if near is not None and _distance(shape, shapes[near]) <= math.log1p(SHAPE_MARGIN) else None


def other_shapes(first: Side, second: Side, pairs: Mapping[str, str]) -> list[str]:
    """Why workloads of the first are not compared."""
    theirs = "; ".join(_shape_name(*shape) for shape in second.shapes.values())
    return [
        f"workload {name} ({_shape_name(*shape)}) is not compared: nothing in {second.name} is within "
        f"{SHAPE_MARGIN:.0%} of its lengths ({theirs or 'it tells none'})"
        for name, shape in first.shapes.items()
        if name not in pairs
    ]


def _distance(first: tuple[float, float], second: tuple[float, float]) -> float:
    return max(abs(math.log(a / b)) for a, b in zip(first, second, strict=True))


def _by_name(side: Side) -> dict[str, str]:
    """Config ids by what people call them: the label (which `export` gives to the results as their tag), or the id."""
    return {config.label: config_id for config_id, config in side.configs.items()} | {c: c for c in side.configs}


def match_configs(first: Side, second: Side) -> list[Match]:
    """Which config of the first is which of the second.

    Runs: by their settings and environment; else by the server that they came to; else, where not one is matched, by
    what is left without the settings that all configs of one run have and all of the other have otherwise. Results of
    other clients tell no settings: by name (label or id) where both sides have one, else each with each.
    """
    if first.is_peer or second.is_peer:
        names = [_by_name(side) for side in (first, second)]
        shared = {(names[0][name], names[1][name]): None for name in names[0] if name in names[1]}
        if shared:
            return [Match(a, b, "by name") for a, b in shared]
        served = [[c for c, config in side.configs.items() if config.state == "served"] for side in (first, second)]
        return [Match(a, b, "all pairs") for a in served[0] for b in served[1]]
    found = [Match(c, c, "same settings") for c in first.configs if c in second.configs]
    taken = {m.first for m in found}
    free = [c for c in second.configs if c not in taken]
    for config_id in (c for c in first.configs if c not in taken):
        own = first.configs[config_id].identities
        same = next((c for c in free if own & second.configs[c].identities), None)
        if same is not None:
            found.append(Match(config_id, same, "same server"))
            free.remove(same)
    return found or _matched_otherwise(first, second)


def _matched_otherwise(first: Side, second: Side) -> list[Match]:
    apart = settings_apart(first, second)
    ours = {_without(apart, config): config_id for config_id, config in first.configs.items()}
    theirs = {_without(apart, config): config_id for config_id, config in second.configs.items()}
    alone = len(first.configs) == len(second.configs) == 1
    if len(ours) < len(first.configs) or len(theirs) < len(second.configs):  # told apart by their environment alone
        return []
    how: How = "the only configs" if alone else "the same otherwise"
    return [Match(ours[left], theirs[left], how) for left in ours if left in theirs]


def settings_apart(first: Side, second: Side) -> dict[str, tuple[str, str]]:
    """Settings that have one value in all configs of the first, and another one in all of the second; "-" is none."""
    names = dict.fromkeys(n for side in (first, second) for config in side.configs.values() for n in config.settings)
    found = {}
    for name in names:
        one, other = ({_told(c.settings.get(name)) for c in side.configs.values()} for side in (first, second))
        if len(one) == len(other) == 1 and one != other:
            found[name] = (one.pop(), other.pop())
    return found


def _without(names: Collection[str], config: ComparedConfig) -> frozenset[tuple[str, str]]:
    return frozenset((n, _told(value)) for n, value in config.settings.items() if n not in names)


def _told(value: object) -> str:
    return "-" if value is None else value if isinstance(value, str) else json.dumps(value, sort_keys=True)

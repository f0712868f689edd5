"""Which measurements of an earlier run are those that a scenario asks for, and why others are not. Pure.

A point's id covers engine, model, command, config, workload, load level, window, seed and repeat. What else decides a
measurement is compared here: the rest of `engine`, GPUs, the release of the server, and the class of its hosts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from orchestrator.planning.planner import point_specs, trial_of
from orchestrator.redaction import storable
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.sweep_space import expand
from orchestrator.trial import EngineConfig, Trial

# Keys that no point id covers and that a server, or the load on it, may run otherwise by.
_DECIDE: dict[str, tuple[str, ...]] = {
    "engine": ("extra_args", "work_dir", "address_space_limit_gib", "profile", "faults", "allow_faked", "ulimits",
               "env", "before_start", "after_stop", "flags", "ready", "counters"),
    "model": ("draft_path", "path_by_host", "draft_path_by_host"),
    "slots": ("gpus", "nnodes", "cpus"),
}  # fmt: skip
# What point ids cover: told where nothing at all is alike.
_COVERED = ("model", "engine", "sweep", "workloads", "measure", "seed", "timeouts")


@dataclass(frozen=True, slots=True)
class EarlierStart:
    """One server start of an earlier run, by the row of its trial."""

    config_id: str
    repeat: int
    attempt: int
    host_class: str
    version: str | None


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """What a run directory says of itself. `points`: point id -> attempt that counts, without those that are void;
    `classes`: of its hosts, none where it does not tell.
    """

    run_id: str
    root: str
    scenario: Mapping[str, Any]
    classes: tuple[str, ...]
    starts: Sequence[EarlierStart]
    points: Mapping[str, int]

    @property
    def versions(self) -> tuple[str, ...]:
        return tuple(sorted({start.version for start in self.starts if start.version}))


@dataclass(frozen=True, slots=True)
class TakenTrial:
    """A trial of the new run with the points that were measured before: point id -> attempt in the earlier run."""

    trial: Trial
    points: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Reusable:
    """What an earlier run has of a scenario: `count` of `asked` points (None: a search decides how many).

    `refusal`: why it must not be taken, if so.
    """

    run: EarlierRun
    taken: tuple[TakenTrial, ...]
    asked: int | None
    refusal: str = ""

    @property
    def count(self) -> int:
        return sum(len(trial.points) for trial in self.taken)


class Question:
    """What a scenario asks for, found out once for all the runs that may have some of it."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.is_grid = scenario.search.method == "grid"

    @cached_property
    def configs(self) -> dict[str, EngineConfig]:
        """By id."""
        return {config.config_id: config for config in expand(self.scenario)}

    @cached_property
    def points(self) -> int | None:
        """On each class of hosts; None where a search decides how many."""
        each = self.scenario.measure.repeats * len(point_specs(self.scenario))
        return len(self.configs) * each if self.is_grid else None


def reusable(question: Question, earlier: EarlierRun) -> Reusable:
    """The measurements of an earlier run that a scenario asks for."""
    scenario = question.scenario
    taken = tuple(_taken(question, earlier))
    asked = None if question.points is None else max(len(earlier.classes), 1) * question.points
    refusal = _refusal(scenario, earlier) or ("" if taken else _nothing(scenario, earlier))
    return Reusable(earlier, taken, asked, refusal)


def _taken(question: Question, earlier: EarlierRun) -> Iterator[TakenTrial]:
    scenario, configs = question.scenario, question.configs
    several = len(earlier.classes) > 1
    seen = dict.fromkeys((s.config_id, s.repeat, s.host_class if several else "") for s in earlier.starts)
    for config_id, repeat, host_class in seen:
        if config_id not in configs or (question.is_grid and repeat >= scenario.measure.repeats):
            continue
        trial = trial_of(scenario, configs[config_id], None, repeat, host_class)
        found = {p.point_id: earlier.points[p.point_id] for p in trial.points if p.point_id in earlier.points}
        if found:
            yield TakenTrial(trial, found)


def _refusal(scenario: Scenario, earlier: EarlierRun) -> str:
    """Why measurements of a run must not stand beside new ones, whatever their ids."""
    if scenario.engine.kind == "attach":
        return "nobody knows which server was attached to then (engine.kind attach)"
    told = differences(storable(scenario), earlier.scenario)
    if told:
        return f"was measured otherwise: {'; '.join(told)}"
    if not earlier.classes:
        return "does not tell the class of its hosts (a run of an earlier release)"
    if len(earlier.versions) > 1:
        return f"was measured with several releases: {', '.join(earlier.versions)}"
    wanted = scenario.engine.version
    if wanted is not None and earlier.versions and earlier.versions[0] != wanted:
        return f"was measured with SGLang {earlier.versions[0]}, engine.version is {wanted}"
    return ""


def differences(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[str]:
    """`key: value there, value here` of all that differs and is in no point id. Both as manifests have them."""
    told = []
    for part, names in _DECIDE.items():
        here, there = new.get(part) or {}, old.get(part) or {}
        for name in names:
            if here.get(name) != there.get(name) and (here.get(name) or there.get(name)):
                told.append(f"{part}.{name}: {_shown(there.get(name))} there, {_shown(here.get(name))} here")
    return told


def _nothing(scenario: Scenario, earlier: EarlierRun) -> str:
    new = storable(scenario)
    differing = [name for name in _COVERED if new.get(name) != earlier.scenario.get(name)]
    why = f" (differs in: {', '.join(differing)})" if differing else ""
    return f"has none of the points that are asked for{why}"


def _shown(value: Any) -> str:
    text = "nothing" if value in (None, [], {}, "") else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

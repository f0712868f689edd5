"""Scenario -> trials, their points, their slot and their order. Pure: no clock, no randomness without the seed."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from orchestrator.planning.trial_estimate import trial_estimate_s
from orchestrator.scenarios.engine_build import build_identity
from orchestrator.scenarios.extra_body import body_text
from orchestrator.scenarios.scenario import Profile, Scenario
from orchestrator.scenarios.scenario_engine import Engine
from orchestrator.scenarios.scenario_workload import Workload
from orchestrator.scenarios.sweep_space import expand
from orchestrator.scenarios.workload_traffic import (
    arrival_of,
    kinds_of,
    load_levels,
    traffic_of,
    typical_tokens,
)
from orchestrator.searches.search_state import probed_mark
from orchestrator.traffic import POISSON
from orchestrator.trial import EngineConfig, LoadLevel, Point, PointSpec, ProfileSpec, Repaired, Trial, content_hash

# Seeds of repeated probes lie apart from those that anybody gives.
_OTHER_SEED = 7_000_003


@dataclass(frozen=True, slots=True)
class Plan:
    """Trials in the order of each slot. `makespan_s` is the estimated time of the slowest slot."""

    configs: tuple[EngineConfig, ...]
    slots: tuple[tuple[Trial, ...], ...]

    @property
    def trials(self) -> list[Trial]:
        return [trial for slot in self.slots for trial in slot]

    @property
    def points(self) -> int:
        return sum(len(trial.points) for trial in self.trials)

    @property
    def makespan_s(self) -> float:
        return max((sum(t.estimated_s for t in slot) for slot in self.slots), default=0.0)

    @property
    def server_hours(self) -> float:
        return sum(t.estimated_s for t in self.trials) / 3600


@dataclass(frozen=True, slots=True)
class StandIn:
    """The config that is run in place of one that died; None where nothing is started for it."""

    config: EngineConfig | None
    repaired: Repaired | None = None


def make_plan(
    scenario: Scenario,
    slot_count: int,
    done: frozenset[str] = frozenset(),
    stand_ins: Mapping[str, StandIn] | None = None,
) -> Plan:
    """Every trial that still has points to measure, over `slot_count` slots of hosts of one class.

    `done` holds point ids and trial ids that need no work, `stand_ins` what runs in place of configs by their ids
    (resume). Trials go, dearest first, to the slot that is free first, so that slots finish together; within a slot
    they run in random order from the scenario's seed.
    """
    return make_class_plan(scenario, [""] * max(1, slot_count), ("",), done, lambda _: stand_ins or {})


def make_class_plan(
    scenario: Scenario,
    slots: Sequence[str],
    classes: Sequence[str],
    done: frozenset[str],
    stand_ins: Callable[[str], Mapping[str, StandIn]],
) -> Plan:
    """A plan for slots on hosts of several classes: every class measures everything that is not done.

    `slots` has the class of each slot, `classes` all of the run. Trials of a class without a slot come behind those of
    all slots, for slots that may join.
    """
    configs = tuple(expand(scenario))
    queues: list[tuple[Trial, ...]] = [()] * len(slots)
    for host_class in classes:
        trials = _trials(scenario, configs, host_class, done, stand_ins(host_class))
        own = [i for i, of in enumerate(slots) if of == host_class]
        for i, queue in zip(own, _spread(trials, max(1, len(own)), scenario.seed), strict=False):
            queues[i] = queue
        if not own:
            queues.extend(_spread(trials, 1, scenario.seed))
    return Plan(configs, tuple(queues))


def _trials(
    scenario: Scenario,
    configs: tuple[EngineConfig, ...],
    host_class: str,
    done: frozenset[str],
    stand_ins: Mapping[str, StandIn],
) -> list[Trial]:
    specs = point_specs(scenario)
    trials = []
    for repeat in range(scenario.measure.repeats):
        for asked in configs:
            run = stand_ins.get(asked.config_id, StandIn(asked))
            if run.config is None:
                continue
            trial = _trial(scenario, run, repeat, specs, done, host_class)
            is_probing = is_probed(scenario) and probed_mark(trial.trial_id) not in done
            if (trial.points or is_probing) and trial.trial_id not in done:
                trials.append(trial)
    return trials


def is_probed(scenario: Scenario) -> bool:
    """Whether trials have points besides those of the plan: rates that are searched."""
    return any(workload.max_rate is not None for workload in scenario.workloads)


def trial_of(
    scenario: Scenario, config: EngineConfig, repaired: Repaired | None, repeat: int, host_class: str = ""
) -> Trial:
    """One trial of a config with all its points."""
    return _trial(scenario, StandIn(config, repaired), repeat, point_specs(scenario), frozenset(), host_class)


def point_specs(scenario: Scenario) -> tuple[PointSpec, ...]:
    """Workloads x load levels, as written, light loads first."""
    return tuple(
        _point_spec(scenario, workload, level) for workload in scenario.workloads for level in load_levels(workload)
    )


def _point_spec(scenario: Scenario, workload: Workload, level: LoadLevel) -> PointSpec:
    measure, kinds = scenario.measure, kinds_of(workload)
    return PointSpec(
        workload=workload.name,
        level=level,
        api=workload.api,
        dataset=workload.dataset,
        input_tokens=typical_tokens(tuple((kind.weight, kind.input_tokens) for kind in kinds)),
        output_tokens=typical_tokens(tuple((kind.weight, kind.output_tokens) for kind in kinds)),
        warmup_s=measure.warmup_s,
        warmup_requests=measure.warmup_requests,
        duration_s=measure.duration_s,
        requests=measure.requests,
        temperature=workload.temperature,
        ignore_eos=workload.ignore_eos,
        request_timeout_s=scenario.timeouts.request_s,
        max_concurrency=workload.max_concurrency,
        shared_prefix_tokens=workload.shared_prefix_tokens,
        model=scenario.model.served_name or ("" if scenario.engine.kind == "command" else scenario.model.path),
        seed=scenario.seed,
        extra_body=body_text(workload.extra_body),
        counters=_counters(scenario.engine),
        profile=_profile_spec(measure.profile),
        traffic=traffic_of(workload),
        arrival=arrival_of(workload, level),
        tokenizer=workload.tokenizer or "",
    )


def _profile_spec(profile: Profile | None) -> ProfileSpec | None:
    if profile is None:
        return None
    return ProfileSpec(
        output_dir=profile.output_dir,
        duration_s=profile.duration_s,
        activities=tuple(profile.activities),
        by_stage=profile.by_stage,
        with_stack=profile.with_stack,
        record_shapes=profile.record_shapes,
    )


def _counters(engine: Engine) -> tuple[tuple[str, str], ...]:
    return tuple((what, name) for what, name in engine.counters.model_dump().items() if name is not None)


def _trial(
    scenario: Scenario,
    run: StandIn,
    repeat: int,
    specs: tuple[PointSpec, ...],
    done: frozenset[str],
    host_class: str,
) -> Trial:
    config = run.config
    assert config is not None
    trial_id = f"{config.config_id}-r{repeat}" + (f"-{content_hash(host_class, 6)}" if host_class else "")
    server = _server_identity(scenario, config, host_class)
    points = []
    for spec in specs:
        point = _point(server, trial_id, config, repeat, spec)
        if point.point_id not in done:
            points.append(point)
    return Trial(
        trial_id, config, repeat, tuple(points), trial_estimate_s(scenario, config, points), run.repaired, host_class
    )


def probe_point(scenario: Scenario, trial: Trial, workload: Workload, rate_rps: float, number: int) -> Point:
    """A point of the search over a workload's rates; each probe of a rate, from 0, sends other requests."""
    spec = _point_spec(scenario, workload, LoadLevel("rate", rate_rps))
    spec = replace(spec, seed=spec.seed + _OTHER_SEED * number)
    server = _server_identity(scenario, trial.config, trial.host_class)
    return _point(server, trial.trial_id, trial.config, trial.repeat, spec)


def _point(server: list[Any], trial_id: str, config: EngineConfig, repeat: int, spec: PointSpec) -> Point:
    return Point(content_hash([server, _spec_identity(spec), repeat]), trial_id, config.config_id, repeat, spec)


def _server_identity(scenario: Scenario, config: EngineConfig, host_class: str) -> list[Any]:
    identity: list[Any] = [scenario.engine.kind, scenario.model.path, scenario.engine.command, config.config_id]
    if scenario.engine.kind == "command":
        identity.append(scenario.engine.flags)
    if config.build:
        identity.append({"build": build_identity(scenario, config.build)})
    if scenario.slots.nnodes > 1:  # only then, so that earlier runs can be resumed
        identity.append({"nnodes": scenario.slots.nnodes})
    if host_class:
        identity.append({"host_class": host_class})
    return identity


def _spec_identity(spec: PointSpec) -> list[Any]:
    """What decides a point: a profile is taken after it, later additions count only where they are used.

    So earlier runs can be resumed.
    """
    names = [name for name in spec.__slots__ if name != "profile"]
    added = {"extra_body", "counters", "traffic", "tokenizer"}
    values = [(name, getattr(spec, name)) for name in names]
    return [v for name, v in values if (v or name not in added) and not (name == "arrival" and v == POISSON)]


def _spread(trials: list[Trial], slot_count: int, seed: int) -> tuple[tuple[Trial, ...], ...]:
    order = list(trials)
    rng = random.Random(f"order-{seed}")
    rng.shuffle(order)
    order.sort(key=lambda t: -t.estimated_s)  # stable: equals stay shuffled
    slots: list[list[Trial]] = [[] for _ in range(slot_count)]
    load = [(0.0, i) for i in range(slot_count)]
    heapq.heapify(load)
    for trial in order:
        busy, i = heapq.heappop(load)
        slots[i].append(trial)
        heapq.heappush(load, (busy + trial.estimated_s, i))
    for slot in slots:
        rng.shuffle(slot)
    return tuple(tuple(slot) for slot in slots)


@dataclass(frozen=True, slots=True)
class DatasetFile:
    """A file that load hosts read: prompts and conversations, or a trace. `key` is where the scenario names it."""

    path: PurePath
    traced: bool
    key: tuple[str | int, ...]


def dataset_files(scenario: Scenario) -> list[DatasetFile]:
    """Files that workloads read, to be checked before anything starts."""
    found = []
    for i, workload in enumerate(scenario.workloads):
        for j, kind in enumerate(kinds_of(workload)):
            if kind.dataset.startswith("file:"):
                of_mix = bool(workload.mix) and workload.mix[j].dataset is not None
                key = ("workloads", i, "mix", j, "dataset") if of_mix else ("workloads", i, "dataset")
                path = PurePath(kind.dataset.removeprefix("file:"))
                found.append(DatasetFile(path, bool(workload.trace), key))
    return found

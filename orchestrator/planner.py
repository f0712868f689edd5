"""Scenario -> trials, their points, their slot and their order. Pure: no clock, no randomness without the seed."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from orchestrator.extra_body import body_text
from orchestrator.scenario import Profile, Scenario, Workload
from orchestrator.scenario_engine import Engine
from orchestrator.sweep_space import expand
from orchestrator.traffic import POISSON
from orchestrator.trial import EngineConfig, LoadLevel, Point, PointSpec, ProfileSpec, Repaired, Trial, content_hash
from orchestrator.workload_traffic import (
    arrival_of,
    gap_per_request_s,
    kinds_of,
    load_levels,
    session_turns,
    traffic_of,
    typical_tokens,
)

# Rough seconds of a server start; they only have to order starts by cost (measured starts replace them in ETAs).
START_S = 60.0
CAPTURE_S = 1.0
DRAIN_S = 5.0
# Of a server that we know nothing about; on a CPU, models are small.
COMMAND_START_S = {"cpu": 10.0, "gpu": 120.0}
# A window given in requests has no known length; this is the guess for `plan`.
REQUEST_S = 5.0
# Requests per second of a trace that has not been read.
TRACE_RATE = 1.0


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
            if trial.points and trial.trial_id not in done:
                trials.append(trial)
    return trials


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
    identity: list[Any] = [scenario.engine.kind, scenario.model.path, scenario.engine.command, config.config_id]
    if scenario.engine.kind == "command":
        identity.append(scenario.engine.flags)
    if host_class:
        identity.append({"host_class": host_class})
    points = []
    for spec in specs:
        point_id = content_hash([identity, _spec_identity(spec), repeat])
        if point_id not in done:
            points.append(Point(point_id, trial_id, config.config_id, repeat, spec))
    return Trial(
        trial_id, config, repeat, tuple(points), _estimate_s(scenario, config, points), run.repaired, host_class
    )


def _spec_identity(spec: PointSpec) -> list[Any]:
    """What decides a point: a profile is taken after it, later additions count only where they are used.

    So earlier runs can be resumed.
    """
    names = [name for name in spec.__slots__ if name != "profile"]
    added = {"extra_body", "counters", "traffic", "tokenizer"}
    values = [(name, getattr(spec, name)) for name in names]
    return [v for name, v in values if (v or name not in added) and not (name == "arrival" and v == POISSON)]


def _estimate_s(scenario: Scenario, config: EngineConfig, points: list[Point]) -> float:
    start = start_estimate_s(scenario, config)
    measure = scenario.measure
    window = measure.duration_s or 0.0
    if measure.requests is not None:
        window = 0.0
        for point in points:
            window += _requests_s(point.spec, measure.requests) / len(points)
    profile = measure.profile.duration_s + DRAIN_S if measure.profile else 0.0
    return start + len(points) * (measure.warmup_s + window + DRAIN_S + profile)


def _requests_s(spec: PointSpec, requests: int) -> float:
    """Seconds for so many requests: of users who think, at a rate with its ramp, of a trace that nobody has read."""
    level, arrival = spec.level, spec.arrival
    if level.kind == "concurrency":
        return requests * (REQUEST_S + gap_per_request_s(spec.mix)) / level.value + arrival.ramp_s / 2
    if level.kind == "trace":
        return requests / TRACE_RATE / level.value
    # The later requests of the last session come after it has begun.
    rest = max(session_turns(spec.mix) - 1, 0) * REQUEST_S + gap_per_request_s(spec.mix) * session_turns(spec.mix)
    left, seconds = requests / level.value + arrival.ramp_s / 2, 0.0
    for length_s, share in arrival.steps[:-1]:
        if left <= length_s * share:
            return seconds + left / share + rest
        left, seconds = left - length_s * share, seconds + length_s
    return seconds + left / (arrival.steps[-1][1] if arrival.steps else 1.0) + rest


def start_estimate_s(scenario: Scenario, config: EngineConfig) -> float:
    """Seconds until a server of the scenario is ready, roughly."""
    engine = scenario.engine
    if engine.kind == "command":
        return COMMAND_START_S["gpu" if scenario.slots.gpus else "cpu"]
    return 0.0 if engine.kind == "attach" else sglang_start_s(config) / engine.start_speedup


def sglang_start_s(config: EngineConfig) -> float:
    """Seconds of a real start: a base, and every captured batch size once for the target and again for the draft."""
    settings = config.as_dict()
    largest = settings.get("cuda_graph_max_bs_decode", min(int(settings.get("max_running_requests", 256)), 256))
    captured = 4 + int(largest) / 8
    graphs = 1 if config.speculation_depth == 0 else 2 if config.speculation_depth == 1 else 3
    return START_S + CAPTURE_S * captured * graphs


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

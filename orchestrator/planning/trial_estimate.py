"""How long a trial takes, roughly: server starts by what they capture, points by their windows. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_workload import Workload
from orchestrator.scenarios.workload_traffic import gap_per_request_s, session_turns
from orchestrator.trial import EngineConfig, Point, PointSpec

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


def trial_estimate_s(scenario: Scenario, config: EngineConfig, points: Sequence[Point]) -> float:
    """Seconds of a trial with these points, and with what is searched over rates."""
    start = start_estimate_s(scenario, config)
    measure = scenario.measure
    window = measure.duration_s or 0.0
    if measure.requests is not None:
        window = 0.0
        for point in points:
            window += _requests_s(point.spec, measure.requests) / len(points)
    profile = measure.profile.duration_s + DRAIN_S if measure.profile else 0.0
    probes = sum(_probes(workload) for workload in scenario.workloads)
    return start + (len(points) + probes) * (measure.warmup_s + window + DRAIN_S + profile)


def _probes(workload: Workload) -> int:
    """Points of a search over rates, at a guess: doubling, then halving, and some of them twice."""
    keys = workload.max_rate
    if keys is None:
        return 0
    doublings = math.log2(keys.high / keys.low) / 2 + 1
    return math.ceil(doublings + math.log2(math.log(2) / math.log1p(keys.precision)) + 1)


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

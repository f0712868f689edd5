"""What a scenario asks for and will not get: told by `specsweep plan` before anything is measured. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.previews.percentile_support import thin_percentiles
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_traffic import MixEntry
from orchestrator.scenarios.scenario_workload import Workload
from orchestrator.scenarios.workload_traffic import arrival_keys, gap_per_request_s, kinds_of, session_turns


def plan_warnings(scenario: Scenario) -> list[str]:
    """Percentiles without enough requests, keys that have no say, windows that end before what they are to show."""
    told = thin_percentiles(scenario)
    for i, workload in enumerate(scenario.workloads):
        told += _idle_keys(f"workloads[{i}]", workload)
        told += _short_windows(f"workloads[{i}]", scenario, workload)
    return told


def _idle_keys(where: str, workload: Workload) -> Iterator[str]:
    """Prompts of a file are sent whole, and a recorded conversation says itself what follows."""
    parts: list[tuple[str, Workload | MixEntry]] = [(f"{where}.mix[{j}]", part) for j, part in enumerate(workload.mix)]
    for place, part in parts or [(where, workload)]:
        if not (part.dataset or workload.dataset).startswith("file:"):
            continue
        if part.input_tokens is not None and "input_tokens" in part.model_fields_set:
            yield f"{place}.input_tokens has no say: prompts of a file are sent whole"
        if part.session is not None and "turn_tokens" in part.session.model_fields_set:
            yield f"{place}.session.turn_tokens has no say: the file says what follows"


def _short_windows(where: str, scenario: Scenario, workload: Workload) -> Iterator[str]:
    window_s = scenario.measure.duration_s
    if window_s is None:
        return
    longer = f"is over after measure.duration_s {window_s:g}: give a longer one"
    arrival = arrival_keys(workload)
    if arrival.ramp_s >= window_s:
        yield f"{where}.arrival.ramp_s is {arrival.ramp_s:g}: the load never gets to its level, the point {longer}"
    begun_s = 0.0
    for j, (length_s, _) in enumerate(arrival.steps):
        if begun_s >= window_s:
            yield f"{where}.arrival.steps[{j}] begins after {begun_s:g} s and is never reached: the point {longer}"
            return
        begun_s += length_s
    kinds = kinds_of(workload)
    thought_s = gap_per_request_s(kinds) * session_turns(kinds)
    if thought_s >= window_s:
        yield f"{where}: a session thinks for {thought_s:g} s (gap_s between turns), and the point {longer}"

"""What contradicts itself in a scenario's workloads: datasets, lengths, sessions, mixes, arrivals, levels. Pure."""

from __future__ import annotations

from typing import Any

from orchestrator.errors import BadInput
from orchestrator.scenarios.arrival_check import check_arrival
from orchestrator.scenarios.draw_check import check_draw
from orchestrator.scenarios.extra_body import owned_keys
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_traffic import ArrivalKeys, Distribution, MixEntry, SessionKeys
from orchestrator.scenarios.scenario_workload import Workload
from orchestrator.scenarios.sweep_check import Fault
from orchestrator.scenarios.workload_traffic import (
    arrival_keys,
    arrival_of,
    draw_of,
    is_open_loop,
    kinds_of,
    load_levels,
)
from orchestrator.sglang.options import nearest
from orchestrator.traffic import Traffic

DATASETS = ("random_text", "code", "repetitive", "random_ids")

_TRACE_SAYS = "does not go with `trace`, which says itself what is sent when; leave it out, or use another workload"

_Path = tuple[str | int, ...]


def check_workloads(scenario: Scenario) -> Fault | None:
    """The first fault of any workload."""
    names: set[str] = set()
    for i, workload in enumerate(scenario.workloads):
        path = ("workloads", i)
        if workload.name in names:
            return (*path, "name"), f"'{workload.name}' is used twice; objectives refer to workloads by name"
        names.add(workload.name)
        fault = (
            _check_levels(path, workload)
            or _check_drawn_keys(path, workload)
            or _check_mix(path, workload)
            or _check_max_rate(path, workload)
            or _check_arrival(path, workload)
        )
        if fault:
            return fault
        if workload.slo is not None and not workload.slo.limits():
            return (*path, "slo"), "has no limit; give ttft_ms, tpot_ms or e2e_ms"
        if owned := owned_keys(workload.extra_body):
            return (*path, "extra_body", owned[0]), "is sent by Specsweep itself; the other keys of the workload set it"
    return None


def measured_levels(workload: Workload, kind: str) -> list[Any]:
    """The levels of one kind that are measured: `concurrency`, `rate` or `trace`."""
    levels: list[Any] = getattr(workload, "rates" if kind == "rate" else kind)
    return levels


def _check_levels(path: _Path, workload: Workload) -> Fault | None:
    if not workload.concurrency and not is_open_loop(workload):
        return path, "has no load level; give `concurrency: [...]`, `rates: [...]`, `trace: [...]` or `max_rate`"
    for key in ("concurrency", "rates", "trace"):
        levels = getattr(workload, key)
        if len(set(levels)) < len(levels):
            return (*path, key), f"has a level twice: {levels}"
    if workload.max_concurrency is not None and not is_open_loop(workload):
        return (*path, "max_concurrency"), "is for open loop; with `concurrency` the level is the limit"
    return _check_trace(path, workload) if workload.trace else None


def _check_trace(path: _Path, workload: Workload) -> Fault | None:
    if not workload.dataset.startswith("file:"):
        return (*path, "trace"), f"replays a trace, but dataset is '{workload.dataset}': give `dataset: file:PATH`"
    for key in ("concurrency", "rates", "mix", "session", "shared_prefix_tokens"):
        if getattr(workload, key):
            return (*path, key), _TRACE_SAYS
    for key in ("input_tokens", "output_tokens"):
        if key in workload.model_fields_set:
            return (*path, key), _TRACE_SAYS
    return None


def _check_drawn_keys(path: _Path, part: Workload | MixEntry) -> Fault | None:
    """Lengths and sessions of a workload or of one kind of its mix."""
    for key in ("input_tokens", "output_tokens"):
        fault = _check_drawn((*path, key), getattr(part, key), 1.0)
        if fault:
            return fault
    return None if part.session is None else _check_session((*path, "session"), part.session)


def _check_session(path: _Path, session: SessionKeys) -> Fault | None:
    return (
        _check_drawn((*path, "turns"), session.turns, 1.0)
        or _check_drawn((*path, "gap_s"), session.gap_s, 0.0)
        or _check_drawn((*path, "turn_tokens"), session.turn_tokens, 1.0)
    )


def _check_drawn(path: _Path, value: float | Distribution | None, least: float) -> Fault | None:
    if not isinstance(value, Distribution):
        return None
    given = [key for key in Distribution.model_fields if getattr(value, key) is not None]
    if len(given) != 1:
        return path, f"wants exactly one of {', '.join(Distribution.model_fields)}"
    path = (*path, given[0])
    if value.histogram is not None:
        return _check_histogram(path, value.histogram, least)
    drawn: Any = getattr(value, given[0])
    low, high = getattr(drawn, "low", None), drawn.high
    if low is not None and low < least:
        return (*path, "low"), f"is {low:g}; allowed: from {least:g}"
    if high is not None and high < (least if low is None else low):
        return (*path, "high"), f"is {high:g}, which is below the smallest, {least if low is None else low:g}"
    try:
        check_draw(draw_of(value, least), given[0])
    except BadInput as fault:
        return path, str(fault).removeprefix(f"{given[0]}: ")
    return None


def _check_histogram(path: _Path, pairs: list[list[float]], least: float) -> Fault | None:
    for i, (value, _) in enumerate(pairs):
        if value < least:
            return (*path, i), f"has the value {value:g}; allowed: from {least:g}"
    if not any(weight > 0 for _, weight in pairs):
        return path, "has no weight above 0; write pairs of a value and its weight"
    return None


def _check_mix(path: _Path, workload: Workload) -> Fault | None:
    names: set[str] = set()
    for j, entry in enumerate(workload.mix):
        here = (*path, "mix", j)
        if entry.name in names:
            return (*here, "name"), f"'{entry.name}' is used twice; records tell kinds of traffic apart by it"
        names.add(entry.name)
        fault = _check_drawn_keys(here, entry)
        if fault:
            return fault
    for j, kind in enumerate(kinds_of(workload)):
        part: Workload | MixEntry = workload.mix[j] if workload.mix else workload
        fault = _check_kind((*path, "mix", j) if workload.mix else path, workload, part, kind)
        if fault:
            return fault
    return None


def _check_kind(path: _Path, workload: Workload, part: Workload | MixEntry, kind: Traffic) -> Fault | None:
    """One kind of traffic as it comes out, whichever of its keys stand at the workload and which at the mix."""
    if kind.dataset not in DATASETS and not kind.dataset.startswith("file:"):
        is_path = "/" in kind.dataset or "." in kind.dataset
        hint = f"file:{kind.dataset}" if is_path else nearest(kind.dataset, list(DATASETS))
        meant = f"; did you mean '{hint}'?" if hint else ""
        return (*path, "dataset"), f"is '{kind.dataset}', allowed: {', '.join(DATASETS)}, file:PATH{meant}"
    if kind.dataset == "file:":
        return (*path, "dataset"), "names no file; write file:PATH"
    if kind.dataset == "random_ids" and workload.api != "generate":
        return (*path, "dataset"), "random_ids sends token ids, which only api `generate` takes"
    tokens = kind.input_tokens.typical
    if kind.shared_prefix_tokens >= tokens and not kind.dataset.startswith("file:"):
        mean = "" if kind.input_tokens.kind == "fixed" else "the mean of "
        return (*path, "shared_prefix_tokens"), f"must be below {mean}input_tokens {tokens:g}"
    if (part.prefix_groups or 1) > 1 and not kind.shared_prefix_tokens:
        return (*path, "prefix_groups"), "is for prompts with a shared prefix: give shared_prefix_tokens"
    return None


def _check_max_rate(path: _Path, workload: Workload) -> Fault | None:
    keys = workload.max_rate
    if keys is None:
        return None
    path = (*path, "max_rate")
    if workload.slo is None:
        return path, "needs limits per request: give the workload an slo"
    if keys.high <= keys.low:
        return (*path, "high"), f"is {keys.high:g}, which is not above low, {keys.low:g}"
    if keys.high > 1e4 * keys.low:
        return (*path, "high"), f"is {keys.high:g}; allowed: up to 10000 times low, {1e4 * keys.low:g}"
    return (path, _TRACE_SAYS) if workload.trace else None


def _check_arrival(path: _Path, workload: Workload) -> Fault | None:
    keys = arrival_keys(workload)
    path = (*path, "arrival")
    if keys.kind == "gamma" and keys.burstiness is None:
        return path, "is gamma, whose burstiness is missing: write {kind: gamma, burstiness: 0.5}"
    if keys.kind != "gamma" and keys.burstiness is not None:
        return (*path, "burstiness"), f"is for arrival gamma, but arrival is {keys.kind}; leave it out or use gamma"
    if not workload.rates and not workload.max_rate and keys != ArrivalKeys.model_validate({"ramp_s": keys.ramp_s}):
        return path, "is for `rates`; in a closed loop only ramp_s has a meaning, a trace has its own times"
    if workload.trace and keys.ramp_s:
        return (*path, "ramp_s"), "is for `rates` and `concurrency`; a trace has its own times"
    for level in load_levels(workload):
        try:
            check_arrival(arrival_of(workload, level), level)
        except BadInput as error:
            return path, str(error)
    return None

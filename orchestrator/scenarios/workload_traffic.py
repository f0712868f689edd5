"""Keys of a workload -> the frozen values that say what is sent and when. Pure; the keys have been checked."""

from __future__ import annotations

from orchestrator.objectives.scenario_objective import Objective
from orchestrator.scenarios.objective_presets import Levels, preset_keys
from orchestrator.scenarios.scenario_traffic import ArrivalKeys, Distribution, MixEntry, SessionKeys
from orchestrator.scenarios.scenario_workload import Workload
from orchestrator.traffic import POISSON, Arrival, Draw, Session, Traffic
from orchestrator.trial import LoadLevel


def load_levels(workload: Workload) -> list[LoadLevel]:
    """Closed-loop levels, then rates, then speeds of a trace, each ascending."""
    levels = [LoadLevel("concurrency", float(c)) for c in sorted(workload.concurrency)]
    levels += [LoadLevel("rate", r) for r in sorted(workload.rates)]
    return levels + [LoadLevel("trace", scale) for scale in sorted(workload.trace)]


def is_open_loop(workload: Workload) -> bool:
    """Whether some of its requests are due at times of their own, however many are running."""
    return bool(workload.rates or workload.trace or workload.max_rate)


def preset_objective(objective: Objective, workloads: list[Workload]) -> Objective:
    """The ordinary objective that one with a preset stands for; unchanged without a preset or where it has no levels.

    What is given beside the preset counts instead of what the preset says.
    """
    named = [w for w in workloads if objective.workload in (None, w.name)]
    if objective.preset is None or len(named) != 1:
        return objective
    found = load_levels(named[0])
    levels = [level for level in found if level.kind == found[0].kind]
    keys = preset_keys(objective.preset, Levels(levels, named[0].slo is not None, named[0].max_rate is not None))
    given = objective.model_dump(exclude_unset=True)
    if keys is None or ("tie_breakers" in given and ("maximize" in given or "minimize" in given)):
        return objective
    if "maximize" in given or "minimize" in given:
        keys = {key: value for key, value in keys.items() if key not in ("maximize", "at")}
    return Objective.model_validate(keys | given)


def draw_of(value: float | Distribution, least: float = 1.0) -> Draw:
    """A number, or how it is drawn: never below `least`."""
    if not isinstance(value, Distribution):
        return Draw(mean=float(value))
    if value.histogram is not None:
        return Draw("histogram", low=least, bins=tuple((v, w) for v, w in value.histogram))
    if value.uniform is not None:
        return Draw("uniform", low=value.uniform.low, high=value.uniform.high)
    if value.exponential is not None:
        return Draw("exponential", mean=value.exponential.mean, low=least, high=value.exponential.high)
    bell = value.normal or value.lognormal
    assert bell is not None
    low = least if bell.low is None else bell.low
    return Draw("normal" if value.normal else "lognormal", bell.mean, bell.std, low, bell.high)


def traffic_of(workload: Workload) -> tuple[Traffic, ...]:
    """All kinds of traffic of a workload; empty where its dataset, two lengths and a prefix are all that it has."""
    if workload.mix:
        return tuple(_kind(workload, entry) for entry in workload.mix)
    drawn = isinstance(workload.input_tokens, Distribution) or isinstance(workload.output_tokens, Distribution)
    if drawn or workload.session is not None or workload.prefix_groups > 1:
        return (_kind(workload, MixEntry.model_validate({"name": workload.name})),)
    return ()


def kinds_of(workload: Workload) -> tuple[Traffic, ...]:
    """All kinds of traffic of a workload, at least one."""
    return traffic_of(workload) or (_kind(workload, MixEntry.model_validate({"name": workload.name})),)


def _kind(workload: Workload, entry: MixEntry) -> Traffic:
    session = entry.session or workload.session
    shared = workload.shared_prefix_tokens if entry.shared_prefix_tokens is None else entry.shared_prefix_tokens
    return Traffic(
        name=entry.name,
        weight=entry.weight,
        dataset=entry.dataset or workload.dataset,
        input_tokens=draw_of(entry.input_tokens or workload.input_tokens),
        output_tokens=draw_of(entry.output_tokens or workload.output_tokens),
        shared_prefix_tokens=shared,
        prefix_groups=(entry.prefix_groups or workload.prefix_groups) if shared else 1,
        session=None if session is None else _session(session),
    )


def _session(keys: SessionKeys) -> Session:
    return Session(keys.kind, draw_of(keys.turns), draw_of(keys.gap_s, 0.0), draw_of(keys.turn_tokens))


def arrival_keys(workload: Workload) -> ArrivalKeys:
    """The arrival of a workload, written out."""
    given = workload.arrival
    return given if isinstance(given, ArrivalKeys) else ArrivalKeys.model_validate({"kind": given})


def arrival_of(workload: Workload, level: LoadLevel) -> Arrival:
    """What of the workload's arrival concerns a level."""
    if level.kind == "trace":
        return Arrival("trace")
    keys = arrival_keys(workload)
    if level.kind == "concurrency":
        return Arrival(ramp_s=keys.ramp_s) if keys.ramp_s else POISSON
    burstiness = 1.0 if keys.burstiness is None else keys.burstiness
    return Arrival(keys.kind, burstiness, keys.ramp_s, tuple((s, share) for s, share in keys.steps))


def typical_tokens(draws: tuple[tuple[float, Draw], ...]) -> int:
    """The mean of lengths that are drawn with these weights, as a whole number."""
    total = sum(weight for weight, _ in draws)
    return max(round(sum(weight * draw.typical for weight, draw in draws) / total), 1)


def longest_request(workload: Workload) -> int:
    """Tokens of the longest request, its answer included; of a file's requests as the workload says."""
    return max(_longest(kind) for kind in kinds_of(workload))


def _longest(kind: Traffic) -> int:
    first = kind.input_tokens.most + kind.output_tokens.most
    if kind.session is None:
        return round(first)
    further = kind.session.turn_tokens.most + kind.output_tokens.most
    return round(first + max(kind.session.turns.most - 1, 0) * further)


def session_turns(kinds: tuple[Traffic, ...]) -> float:
    """Mean requests per session."""
    weight = sum(kind.weight for kind in kinds)
    return sum(k.weight * (k.session.turns.typical if k.session else 1.0) for k in kinds) / weight


def gap_per_request_s(kinds: tuple[Traffic, ...]) -> float:
    """Mean seconds in which a user of a closed loop thinks, for every request."""
    weight = sum(kind.weight for kind in kinds)
    thought = sum(
        k.weight * k.session.gap_s.typical * max(k.session.turns.typical - 1, 0) for k in kinds if k.session is not None
    )
    return thought / weight / session_turns(kinds)

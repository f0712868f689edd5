"""Two runs, or a run and results of another load client, as one comparison: what differs, who serves, ratios. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.errors import BadInput
from orchestrator.exchange.compared_row import ComparedRow, Doubt, Standing, compared_rows, judged, start_rows
from orchestrator.exchange.compared_side import Match, Side, match_configs, other_shapes, settings_apart, shape_pairs
from orchestrator.exchange.run_environment import Difference, fact_differences, scenario_differences, workload_pairs
from orchestrator.objectives.aim import PointValue
from orchestrator.plural import plural

# What only a limit per request defines.
_BY_LIMITS = ("goodput_rps", "attainment", "attainment_n")
# From so many more of a hundred requests on failures are told as a difference of their own.
_FAILING = 0.01
_MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class Served:
    """A matched config whose servers, or whose requests, ended otherwise on the two sides; no statistics."""

    config: str
    first: str
    second: str
    standing: Standing

    def as_json(self) -> dict[str, Any]:
        return {"config": self.config, "first": self.first, "second": self.second, "standing": self.standing.value}


@dataclass(frozen=True, slots=True)
class RunComparison:
    """`first`, `second`: their names. `environment`: what they differ in besides results, what may move them first.

    `only`: what one of them has alone, in sentences. `rows`: facts of starts, then points, by metric.
    """

    first: str
    second: str
    environment: tuple[Difference, ...]
    served: tuple[Served, ...]
    rows: tuple[ComparedRow, ...]
    only: tuple[str, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    matches: int
    doubt: Doubt
    of_files: bool = False  # both were measured by other clients, whose files tell no environment

    @property
    def verdict(self) -> str:
        """worse, better, mixed, same, open, or nothing where nothing could be compared."""
        standings = [row.standing for row in self.rows] + [config.standing for config in self.served]
        if not standings:
            return "nothing"
        worse, better = Standing.WORSE in standings, Standing.BETTER in standings
        if worse or better:
            return "mixed" if worse and better else "worse" if worse else "better"
        return "open" if Standing.OPEN in standings else "same"

    def of(self, standing: Standing) -> list[ComparedRow]:
        """The rows that stand so, the surest first."""
        return sorted((row for row in self.rows if row.standing is standing), key=lambda row: row.strength)

    def as_json(self) -> dict[str, Any]:
        """The documented form for machines (docs/comparing.md)."""
        return {
            "first": self.first,
            "second": self.second,
            "verdict": self.verdict,
            "environment": [difference.as_json() for difference in self.environment],
            "served": [config.as_json() for config in self.served],
            "rows": [row.as_json() for row in self.rows],
            "only": list(self.only),
            "warnings": list(self.warnings),
            "notes": list(self.notes),
            "matched_configs": self.matches,
            "floor": self.doubt.floor,
        }


def compare_sides(first: Side, second: Side, metrics: Sequence[str], doubt: Doubt) -> RunComparison:
    """`metrics`: names of METRICS, and kv_tokens and start_s. BadInput where the two must not be compared."""
    warnings = _refused(first, second)
    matches = match_configs(first, second)
    reasons: list[str] = []
    if first.is_peer or second.is_peer:
        pairs = shape_pairs(first, second)
        reasons += other_shapes(first, second, pairs)
        first = replace(first, values=[v for v in first.values if v.workload in pairs])
    else:
        workloads = [side.scenario.get("workloads") or () for side in (first, second)]
        pairs, reasons = workload_pairs(*workloads)
        first, more = _same_limits(first, second, pairs)
        reasons += more
    starts = [row for row in start_rows(first, second, matches, doubt) if row.metric in metrics]
    points = [metric for metric in metrics if metric not in {"kv_tokens", "start_s"}]
    rows = judged([*starts, *compared_rows(first, second, matches, pairs, points, doubt)])
    return RunComparison(
        first=first.name,
        second=second.name,
        environment=tuple(_environment(first, second, matches)),
        served=tuple(_served(first, second, matches, pairs)),
        rows=tuple(rows),
        only=(*reasons, *_only(first, second, matches, pairs)),
        notes=(*_notes(first, second, rows, matches, doubt), *first.notes, *second.notes),
        warnings=tuple(warnings),
        matches=len(matches),
        doubt=doubt,
        of_files=first.is_peer and second.is_peer,
    )


def _refused(first: Side, second: Side) -> list[str]:
    if {first.emulated, second.emulated} == {True, False}:
        model, real = (first, second) if first.emulated else (second, first)
        raise BadInput(
            f"{model.name} has emulated servers (their speed is a model's) and {real.name} real ones: a ratio of "
            "the two says nothing about either. Compare two runs of one kind."
        )
    warned = [f"{side.name}: emulated servers, no GPU was measured" for side in (first, second) if side.emulated]
    for side in (first, second):
        if side.is_peer:
            warned.append(f"{side.name} was measured by {side.kind}: its file tells neither server nor hosts")
    return warned


def _same_limits(first: Side, second: Side, pairs: dict[str, str]) -> tuple[Side, list[str]]:
    """Goodput and attainment mean the same only under the same limits per request."""
    limits = [{w["name"]: w.get("slo") for w in side.scenario.get("workloads") or ()} for side in (first, second)]
    other = {name for name, into in pairs.items() if limits[0].get(name) != limits[1].get(into)}
    values = [
        replace(v, metrics={n: x for n, x in v.metrics.items() if n not in _BY_LIMITS}) if v.workload in other else v
        for v in first.values
    ]
    told = [f"workload {name}: its slo differs, so goodput and attainment are not compared" for name in sorted(other)]
    return replace(first, values=values), told


def _environment(first: Side, second: Side, matches: Sequence[Match]) -> list[Difference]:
    """Facts, then what the same settings resolved to, then keys of the scenarios; what may move results first."""
    if first.is_peer or second.is_peer:  # a file of another client tells nothing of all that
        return fact_differences(*({"measured by": s.kind if s.is_peer else "specsweep"} for s in (first, second)))
    found = fact_differences(first.facts, second.facts)
    resolved: dict[tuple[str, str, str], list[str]] = {}
    for match in matches:
        a, b = first.configs[match.first], second.configs[match.second]
        for name in dict.fromkeys([*a.telling, *b.telling]):
            if a.telling and b.telling and a.telling.get(name) != b.telling.get(name):
                values = (a.telling.get(name, "-"), b.telling.get(name, "-"))
                resolved.setdefault((name, *values), []).append(a.label)
    if all(match.how in {"the only configs", "the same otherwise"} for match in matches):  # or nothing is matched
        apart = settings_apart(first, second).items()
        found += [Difference(f"setting {name}", one, other) for name, (one, other) in apart]
    for (name, one, other), labels in resolved.items():
        of = "" if len(labels) == len(matches) else f" of {_named(labels)}"
        found.append(Difference(f"{name} as resolved{of}", one, other))
    if first.scenario and second.scenario:
        found += scenario_differences(first.scenario, second.scenario)
    return sorted(found, key=lambda difference: not difference.deciding)


def _served(first: Side, second: Side, matches: Sequence[Match], pairs: dict[str, str]) -> list[Served]:
    """Configs that serve on one side only or less often, and configs whose requests fail on one side, where both have
    measured: at a load that one side alone has tried, failures are no difference.
    """
    found = []
    values = [_by_config(side) for side in (first, second)]
    for match in matches:
        a, b = first.configs[match.first], second.configs[match.second]
        states = {a.state, b.state} if match.how != "all pairs" else set()
        label = a.label if a.label == b.label else f"{a.label} / {b.label}"
        if states == {"served", "died"} or (states == {"served"} and bool(a.deaths) != bool(b.deaths)):
            worse = b.state == "died" or (a.state == b.state and b.deaths > 0)
            standing = Standing.WORSE if worse else Standing.BETTER
            found.append(Served(label, _state(a), _state(b), standing))
        elif "failed" in states and len(states) > 1:
            found.append(Served(label, _state(a), _state(b), Standing.OPEN))
        shares = _failed_shares(values[0].get(match.first, ()), values[1].get(match.second, ()), pairs)
        if abs(shares[1] - shares[0]) > _FAILING:
            texts = [f"{share:.1%} of its requests failed" for share in shares]
            standing = Standing.WORSE if shares[1] > shares[0] else Standing.BETTER
            found.append(Served(label, texts[0], texts[1], standing))
    order = [Standing.WORSE, Standing.BETTER, Standing.OPEN]
    return sorted(found, key=lambda config: order.index(config.standing))


def _state(config: Any) -> str:
    if config.state == "served" and config.deaths:
        return f"died at {config.deaths} of {config.starts} starts ({config.death})"
    return f"{config.state} ({config.death})" if config.death and config.state != "served" else str(config.state)


def _by_config(side: Side) -> dict[str, list[PointValue]]:
    found: dict[str, list[PointValue]] = {}
    for value in side.values:
        found.setdefault(value.config_id, []).append(value)
    return found


def _failed_shares(first: Iterable[PointValue], second: Iterable[PointValue], pairs: dict[str, str]) -> list[float]:
    """Of a config of each side, over the places that both have."""
    own = [(v, (pairs.get(v.workload), v.level)) for v in first]
    other = [(v, (v.workload, v.level)) for v in second]
    shared = {place for _, place in own} & {place for _, place in other}
    return [_failed_share([v.metrics for v, place in side if place in shared]) for side in (own, other)]


def _failed_share(own: Sequence[Mapping[str, float | None]]) -> float:
    total = sum(m.get("requests_total") or m.get("requests_ok") or 0 for m in own)
    return sum(m.get("requests_failed") or 0 for m in own) / total if total else 0.0


def _only(first: Side, second: Side, matches: Sequence[Match], pairs: dict[str, str]) -> list[str]:
    told = []
    for side, own in ((first, {m.first for m in matches}), (second, {m.second for m in matches})):
        alone = [f"{c.label} ({c.state})" for config_id, c in side.configs.items() if config_id not in own]
        if alone:
            told.append(f"only {side.name} has {plural(len(alone), 'config')}: {_named(alone)}")
    names = {into: name for name, into in pairs.items()}
    places = [
        {(names.get(v.workload, v.workload) if i else v.workload, v.level) for v in side.values}
        for i, side in enumerate((first, second))
    ]
    for side, there in ((first, places[0] - places[1]), (second, places[1] - places[0])):
        texts = sorted(f"{workload} at {level}" for workload, level in there)
        if texts:
            told.append(f"only {side.name} has {plural(len(texts), 'load level')}: {_named(texts)}")
    return told


def _named(labels: Sequence[str]) -> str:
    more = len(labels) - _MOST_NAMED
    return "; ".join(labels[:_MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _notes(
    first: Side, second: Side, rows: Iterable[ComparedRow], matches: Sequence[Match], doubt: Doubt
) -> Iterable[str]:
    rows = [row for row in rows if row.metric != "kv_tokens"]
    if not first.is_peer and not second.is_peer:
        yield (
            "the two were not measured side by side: what changed on the hosts in between is in every ratio "
            "(`specsweep nightly` measures in pairs)"
        )
    if any(row.kind == "within_run" for row in rows):
        yield (
            "where each has one start, intervals hold what changes within a run and that two starts differ by "
            f"{doubt.start_noise:.1%} (search.noise); repeats would measure it"
        )
    if any(row.hosts_differ for row in rows):
        which = "the two share no host" if all(row.hosts_differ for row in rows) else "some configs share no host"
        yield f"{which}: intervals hold that hosts of one class differ by {doubt.host_spread:.1%} (search.host_spread)"
    if any(match.how == "all pairs" for match in matches):
        yield "results of other clients name no settings: each config is compared with each of their results"
    if any(match.how == "the only configs" for match in matches):
        yield "each has one config, and these are compared although their settings differ"

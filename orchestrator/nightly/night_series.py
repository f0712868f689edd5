"""From the tables of a night's run to its series: every metric of every config and load level, in pairs. Pure.

Members of a pair have one number (`repeat`) and ran on one slot. What one of them measured in more than one start,
since the first of these broke, is not used: the other member was not beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.nights.night import FEASIBLE, End, Measured, Pair, SeriesKey, StartPair
from orchestrator.nights.night_feasibility import OF_THE_PLACE
from orchestrator.objectives.aim import PointValue, fact_name
from orchestrator.plural import without_digits
from orchestrator.points.metric_names import METRICS, START_S
from orchestrator.points.point_validity import MOST_FAILED_SHARE
from orchestrator.rankings.trial_facts import rate_goal, start_facts
from orchestrator.scenarios.pair_names import config_names
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.sweep_space import BuildPair, build_pairs
from orchestrator.scenarios.workload_traffic import load_levels
from orchestrator.searches.point_need import goals_of
from orchestrator.trial import LoadLevel

_ENDS = {"measured": End.SERVED, "infeasible": End.DIED, "failed": End.FAILED}
_KV_TOKENS = "kv_tokens"
_MAX_RATE = "max_rate_rps"
# What every point has that measured anything.
_MEASURED = "output_throughput_tok_s"
_FAILED_REQUESTS = "requests_failed"
_MOST_REASONS = 3

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NightTables:
    """What a run of pairs left: rows of `trials` (by repeat and time) and of `loads`, and its points with the facts of
    their trials.
    """

    trials: Sequence[Row]
    loads: Sequence[Row]
    values: Sequence[PointValue]


class TablesByTrial:
    """The same, found by what it is of: every row is looked at once, however many trials a night has."""

    def __init__(self, tables: NightTables) -> None:
        self.trials: dict[tuple[str, str], list[Row]] = {}  # by config and class of hosts
        self.places: dict[str, set[tuple[Any, Any]]] = {}  # attempts and slots of a trial's loads
        self.points: dict[str, dict[tuple[str, LoadLevel], PointValue]] = {}
        for row in tables.trials:
            self.trials.setdefault((row["config_id"], class_of(row)), []).append(row)
        for load in tables.loads:
            self.places.setdefault(load["trial_id"], set()).add((load["attempt"], load["slot"]))
        for value in tables.values:
            self.points.setdefault(value.trial_id, {})[value.workload, value.level] = value


def class_of(row: Row) -> str:
    """The class of hosts of a trial; empty where there is but one."""
    return str(row.get("host_class") or "")


@dataclass(frozen=True, slots=True)
class Member:
    """One start of a pair, as it ended last. `whole`: all its points are of that start."""

    row: Row
    end: End
    points: Mapping[tuple[str, LoadLevel], PointValue]
    whole: bool


@dataclass(frozen=True, slots=True)
class Couple:
    """Both members of a pair."""

    reference: Member
    candidate: Member

    @property
    def host(self) -> str:
        """Where the candidate ran."""
        return str(self.candidate.row["host"])

    @property
    def candidate_first(self) -> bool:
        """Whether the candidate was started before the reference."""
        return bool(self.candidate.row["began_at"] < self.reference.row["began_at"])

    @property
    def broken_by_place(self) -> bool:
        """Whether a member broke by what is of the host or the network: it was made anew, and says nothing."""
        members = (self.reference, self.candidate)
        return any(m.end is End.FAILED and m.row["label"] in OF_THE_PLACE for m in members)

    @property
    def why_apart(self) -> str:
        """Why their values cannot be compared; empty if they can."""
        for name, member in (("reference", self.reference), ("candidate", self.candidate)):
            if member.end is not End.SERVED:
                return f"the {name} {member.end.value}" + (f" ({member.row['label']})" if member.row["label"] else "")
            if not member.whole:
                return f"the {name} was started twice"
        if self.reference.row["slot"] != self.candidate.row["slot"]:
            return "its members ran on different slots"
        return ""


def night_series(scenario: Scenario, tables: NightTables) -> tuple[Measured, ...]:
    """Every series of a night, by config: feasibility, the start, then what was measured under load."""
    pairs = build_pairs(scenario)
    labels = config_names(scenario, pairs)
    classes, by_trial = list(dict.fromkeys(map(class_of, tables.trials))) or [""], TablesByTrial(tables)
    found: list[Measured] = []
    for pair in pairs:
        for host_class in classes:
            couples = couples_of(pair, by_trial, host_class)
            key = SeriesKey(FEASIBLE, pair.config_id, "", "", host_class)
            told = [couple for couple in couples if not couple.broken_by_place]
            broken = dict.fromkeys(couple.why_apart for couple in couples if couple.broken_by_place)
            starts, missing = tuple(map(_start_pair, told)), "; ".join(broken)
            found.append(Measured(key, labels[pair.config_id], starts=starts, missing=missing))
            usable = [couple for couple in couples if not couple.why_apart]
            reasons = [couple.why_apart for couple in couples if couple.why_apart]
            if any(c.reference.end is c.candidate.end is End.SERVED for c in couples):
                made = _Series(scenario, key, labels[pair.config_id], usable, reasons)
                found += [*made.of_failures(), *made.of_starts(), *made.of_points(), *made.of_workloads()]
    return tuple(found)


def night_metrics(scenario: Scenario) -> tuple[str, ...]:
    """The metrics under load that are compared: those of `nightly`, and what the objectives look at."""
    assert scenario.nightly is not None, "checked with the scenario"
    aims = [aim for goal in goals_of(scenario) for aim in (goal.aim, *(gate.aim for gate in goal.gates), *goal.ties)]
    looked_at = [reading.metric for aim in aims for reading in aim.readings]
    judged = [name for name in looked_at if name in METRICS and METRICS[name].direction != "none"]
    return tuple(dict.fromkeys((*scenario.nightly.metrics, *judged)))


def couples_of(pair: BuildPair, tables: TablesByTrial, host_class: str) -> list[Couple]:
    """The pairs of a config, in order, of which both members have ended."""
    references = members_of(pair.reference.config_id, host_class, tables)
    candidates = members_of(pair.candidate.config_id, host_class, tables)
    return [Couple(references[n], candidates[n]) for n in sorted(references.keys() & candidates.keys())]


def members_of(config_id: str, host_class: str, tables: TablesByTrial) -> dict[int, Member]:
    """By the number of the pair. A start that was cancelled says nothing."""
    last = {row["repeat"]: row for row in tables.trials.get((config_id, host_class), ())}
    found = {}
    for repeat, row in last.items():
        if row["outcome"] not in _ENDS:
            continue
        trial_id = row["trial_id"]
        whole = tables.places.get(trial_id, set()) <= {(row["attempt"], row["slot"])}
        found[repeat] = Member(row, _ENDS[row["outcome"]], tables.points.get(trial_id, {}), whole)
    return found


def _start_pair(couple: Couple) -> StartPair:
    shown = couple.candidate if couple.candidate.end is not End.SERVED else couple.reference
    return StartPair(
        couple.host,
        couple.candidate_first,
        couple.reference.end,
        couple.candidate.end,
        str(shown.row["label"] or ""),
        str(shown.row["evidence"] or ""),
    )


def _load_pair(couple: Couple, place: tuple[str, LoadLevel]) -> StartPair | None:
    """How the load of a point ended on both members; None where one was not measured."""
    points = [member.points.get(place) for member in (couple.reference, couple.candidate)]
    known = [point for point in points if point is not None]
    if len(known) < 2:
        return None
    bad = [(point.metrics.get("failed_share") or 0.0) > MOST_FAILED_SHARE for point in known]
    ends = [End.FAILED if failed else End.SERVED for failed in bad]
    shown = known[1] if bad[1] else known[0]
    diagnosis, evidence = (_FAILED_REQUESTS, "; ".join(shown.void_reasons)) if any(bad) else ("", "")
    return StartPair(couple.host, couple.candidate_first, ends[0], ends[1], diagnosis, evidence)


@dataclass(frozen=True, slots=True)
class _Series:
    """Makes the series of one config on one class of hosts. `reasons`: why other pairs are not used."""

    scenario: Scenario
    key: SeriesKey
    label: str
    couples: Sequence[Couple]
    reasons: Sequence[str]

    def of_failures(self) -> list[Measured]:
        """Whether requests failed, at load levels where they did: their points are void, and no metric would tell."""
        made = []
        for workload in self.scenario.workloads:
            for level in load_levels(workload):
                place = (workload.name, level)
                starts = [s for couple in self.couples if (s := _load_pair(couple, place)) is not None]
                if any(start.diagnosis for start in starts):
                    key = SeriesKey(FEASIBLE, self.key.config, workload.name, str(level), self.key.host_class)
                    made.append(Measured(key, self.label, starts=tuple(starts)))
        return made

    def of_starts(self) -> list[Measured]:
        engine = self.scenario.engine

        def start_s(member: Member) -> float | None:
            return None if member.row["start_s"] is None else float(member.row["start_s"])

        def kv_tokens(member: Member) -> float | None:
            return start_facts(member.row, engine).get(_KV_TOKENS)

        made = (self._made(_KV_TOKENS, "", "", kv_tokens, {}), self._made(START_S, "", "", start_s, {}))
        return [series for series in made if series is not None]

    def of_points(self) -> list[Measured]:
        made, metrics = [], night_metrics(self.scenario)
        for workload in self.scenario.workloads:
            for level in load_levels(workload):
                place = (workload.name, level)
                for metric in metrics:
                    why: dict[str, str] = {}

                    def value(member: Member, place: Any = place, metric: str = metric, why: Any = why) -> Any:
                        return _value(member.points.get(place), metric, why)

                    made.append(self._made(metric, workload.name, str(level), value, why))
        return [series for series in made if series is not None]

    def of_workloads(self) -> list[Measured]:
        """The highest rates that were found, where they were searched."""
        made = []
        for workload in self.scenario.workloads:
            if rate_goal(workload) is not None:
                name = fact_name(_MAX_RATE, workload.name)

                def value(member: Member, name: str = name) -> float | None:
                    return next((v.facts[name] for v in member.points.values() if name in v.facts), None)

                made.append(self._made(_MAX_RATE, workload.name, "", value, {}))
        return [series for series in made if series is not None]

    def _made(self, metric: str, workload: str, level: str, value: Any, why: Mapping[str, str]) -> Measured | None:
        """None where neither build ever has such a value, as servers without speculation have no accept length."""
        pairs, seen, missing = [], False, list(self.reasons)
        for couple in self.couples:
            before, now = value(couple.reference), value(couple.candidate)
            seen = seen or before is not None or now is not None
            if before is not None and now is not None:
                pairs.append(Pair(couple.host, couple.candidate_first, before, now))
        if not seen and self.couples and not why:
            return None
        lacking = len(self.couples) - len(pairs)
        if lacking:
            missing += list(why.values()) or [f"{metric} was not told by one of the builds"] * lacking
        key = SeriesKey(metric, self.key.config, workload, level, self.key.host_class)
        return Measured(key, self.label, tuple(pairs), missing="; ".join(dict.fromkeys(missing[:_MOST_REASONS])))


def _value(point: PointValue | None, metric: str, why: dict[str, str]) -> float | None:
    """`why`: what of a value that cannot be used stands in its way, once for each kind of reason."""
    if point is None:
        why.setdefault("", "not measured")
        return None
    value = point.metrics.get(metric)
    if not point.void_reasons:
        return value
    if value is not None or not point.metrics.get(_MEASURED):  # else it would not have it either if it counted
        for reason in point.void_reasons:
            why.setdefault(without_digits(reason), f"void: {reason}")
    return None

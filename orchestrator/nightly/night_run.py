"""The run of a night, read: its tables, its series so far, which builds and hosts it was measured on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from orchestrator.nightly.night_json import NightTold, night_of_json
from orchestrator.nightly.night_pairs import PairCount, pair_counts
from orchestrator.nightly.night_series import NightTables, night_series
from orchestrator.nights.expected_changes import ExpectedChange, expected_shift
from orchestrator.nights.night import Measured, Night, NightHost, SeriesKey, SeriesNight, last_measured
from orchestrator.nights.night_luck import LuckBook
from orchestrator.nights.night_rules import NightRules
from orchestrator.nights.night_segments import is_one_segment
from orchestrator.nights.night_terms import night_build
from orchestrator.nights.night_verdict import judge_night, undecided
from orchestrator.paths import RunPaths
from orchestrator.rankings.trial_facts import with_facts
from orchestrator.run_files.engine_software import software_facts, software_unknown
from orchestrator.run_files.journal import read_events, replay
from orchestrator.run_files.run_configs import run_configs
from orchestrator.run_files.run_hosts import read_hosts
from orchestrator.run_files.run_manifest import read_manifest
from orchestrator.run_files.run_rows import RunRows
from orchestrator.scenarios.engine_build import BUILDS, CANDIDATE, REFERENCE
from orchestrator.scenarios.night_scenario import night_name
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.sweep_space import build_pairs


def night_tables(root: Path, scenario: Scenario) -> NightTables:
    """All that the run has measured by now; it may still go on."""
    paths = RunPaths(root)
    state = replay(read_events(paths.journal, without="server_ready"))
    with RunRows(paths) as read:
        asked, trials, loads = read.asked_configs(scenario), read.trials(), read.loads()
        points = read.points(scenario, run_configs(scenario, trials, asked), loads, state.done_points)
    values = with_facts(scenario, trials, [point.value for point in points])
    return NightTables(trials, loads, values)


def empty_night(scenario: Scenario, at: str) -> Night:
    """Of a run that never began."""
    reference, candidate = (night_build(scenario, build, {}) for build in (REFERENCE, CANDIDATE))
    return Night(at, night_name(scenario), "", reference, candidate)


@dataclass(frozen=True, slots=True)
class NightJudge:
    """What nights are judged by: rules, nights of the history (oldest first), and changes that people expect."""

    rules: NightRules
    earlier: tuple[Night, ...] = ()
    changes: tuple[ExpectedChange, ...] = ()

    def judged(self, measured: Sequence[Measured], frame: Night) -> tuple[SeriesNight, ...]:
        """Every series of a night: what it measured, and where and when that was."""
        shifts = {m.key: expected_shift(self.changes, m.key, m.label, frame.scenario, frame.at) for m in measured}
        expected = {key: shift for key, shift in shifts.items() if shift}
        lucks = LuckBook.of(self.earlier, self.rules, self.changes)
        return judge_night(measured, self.earlier, self.rules, expected, lucks, self._alone(measured, frame))

    def _alone(self, measured: Sequence[Measured], frame: Night) -> frozenset[SeriesKey]:
        """Series of which the night before had another reference, other hosts, or another expected change."""
        before = last_measured(self.earlier)
        return frozenset(
            one.key
            for one in measured
            if before is not None and not is_one_segment(before, frame, one.key, one.label, self.changes)
        )


def in_doubt(scenario: Scenario, judge: NightJudge, at: str, root: Path) -> Collection[str]:
    """Ids of configs (without a build) of which a series may be decided by more pairs."""
    tables = night_tables(root, scenario)
    series = judge.judged(night_series(scenario, tables), night_frame(root, scenario, at, tables))
    return frozenset(one.key.config for one in undecided(series, judge.rules))


@dataclass(frozen=True, slots=True)
class MeasuredNight:
    """A night, no gap yet, with how far its pairs had come."""

    night: Night
    counts: tuple[PairCount, ...]


def measured_night(root: Path, scenario: Scenario, at: str, judge: NightJudge) -> MeasuredNight:
    """The night as it was measured and judged. `at`: when it began, UTC in ISO form."""
    tables = night_tables(root, scenario)
    frame = night_frame(root, scenario, at, tables)
    night = replace(frame, series=judge.judged(night_series(scenario, tables), frame))
    return MeasuredNight(night, pair_counts(scenario, tables, read_manifest(root).get("host_classes", ())))


def night_frame(root: Path, scenario: Scenario, at: str, tables: NightTables) -> Night:
    """The night without its series: which builds, on which hosts."""
    known = read_hosts(root)
    used = {str(row["host"]): str(row.get("host_class") or "") for row in tables.trials}
    hosts = (
        NightHost(name, host_class, tuple((k, v) for k, v in known.get(name, {}).items() if k != "host_class"))
        for name, host_class in sorted(used.items())
    )
    return Night(
        at=at,
        scenario=night_name(scenario),
        run=root.resolve().name,
        reference=night_build(scenario, REFERENCE, _software(scenario, tables.trials, REFERENCE)),
        candidate=night_build(scenario, CANDIDATE, _software(scenario, tables.trials, CANDIDATE)),
        hosts=tuple(hosts),
    )


def kept_night(root: Path, rules: NightRules) -> NightTold | None:
    """As it was judged; None while it was not, also after it was begun anew by --resume."""
    try:
        return night_of_json(orjson.loads(RunPaths(root).night.read_bytes()), rules)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _software(scenario: Scenario, trials: Iterable[Mapping[str, Any]], build: str) -> dict[str, str]:
    """What the servers of a build were; their release by their own account, where they came so far."""
    own = _starts_of(scenario, trials, build)
    told = sorted({row["engine_version"] for row in own if row["engine_version"]})
    return software_facts(own) | ({"sglang": " / ".join(told)} if told else {})


def _starts_of(scenario: Scenario, trials: Iterable[Mapping[str, Any]], build: str) -> list[Mapping[str, Any]]:
    ids = {config.config_id for pair in build_pairs(scenario) for config in pair.members if config.build == build}
    return [row for row in trials if row["config_id"] in ids]


def unknown_software(root: Path, scenario: Scenario) -> list[str]:
    """Of which build torch and CUDA are not known, and why; nothing for engines that are no SGLang."""
    if scenario.engine.kind != "sglang" or not RunPaths(root).manifest.exists():
        return []
    with RunRows(RunPaths(root)) as read:
        trials = read.trials()
    told = ((build, software_unknown(_starts_of(scenario, trials, build))) for build in BUILDS)
    return [f"torch and CUDA of the {build} are not known: {why}" for build, why in told if why]

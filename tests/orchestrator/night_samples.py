"""Nights whose servers answer from a script: how fast, how large, and whether at all, build by build."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.nightly.night_run import NightJudge, in_doubt, measured_night
from orchestrator.nights.night import Night, SeriesNight
from orchestrator.nights.night_terms import rules_of
from orchestrator.outcome import Label
from orchestrator.planning.trial_launch import launch_spec
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.scenarios.night_scenario import night_scenario
from orchestrator.scenarios.scenario import Scenario
from orchestrator.server_start import EngineSoftware, LaunchSpec
from orchestrator.sweeps.run_conductor import PairGuide, run_conductor
from orchestrator.sweeps.search_conductor import SearchConductor
from orchestrator.sweeps.sweep import Sweep, SweepResult
from orchestrator.trial import Point
from tests.fakes.killable_sweep import Silent
from tests.fakes.slot import FakeSlot
from tests.orchestrator.scenario_samples import small_scenario

AT = "2026-11-30T02:15:00.000+00:00"


def nightly_scenario(nightly: dict[str, Any] | None = None, **changes: Any) -> Scenario:
    """The small scenario with two builds, which differ by a word on their command lines."""
    keys = {
        "reference": {"name": "pinned", "extra_args": ["--reference"]},
        "candidate": {"name": "tonight", "extra_args": ["--candidate"]},
        "configs": [{"speculative_num_steps": 2}],
        "metrics": ["output_throughput_tok_s", "e2e_p50_ms", "accept_length"],
    }
    workloads = [{"name": "chat", "concurrency": [4]}]
    fast = {"name": "fast", "maximize": "output_throughput_tok_s", "at": {"concurrency": 4}}
    own = {"nightly": {**keys, **(nightly or {})}, "workloads": workloads, "objectives": [fast]}
    return small_scenario(**{**own, **changes})


def is_candidate(spec: LaunchSpec) -> bool:
    return "--candidate" in spec.extra_args


def jitter(*parts: object, spread: float = 0.002) -> float:
    """A factor near 1 that is the same for the same parts."""
    import random

    return 1.0 + random.Random(" ".join(map(str, parts))).uniform(-spread, spread)


def build_slot(
    name: str = "h/0",
    host: str = "h",
    slowdown: float = 1.0,
    kv_tokens: tuple[int, int] = (100_000, 100_000),
    dies: Callable[[LaunchSpec], Label | None] = lambda spec: None,
    host_factor: float = 1.0,
    torch: tuple[str, str] = ("", ""),
) -> FakeSlot:
    """`slowdown` of the candidate, `kv_tokens` and `torch` (empty: not known) of reference and candidate; every start
    is a little different.
    """

    def slowness(spec: LaunchSpec, point: Point) -> float:
        return host_factor * jitter(point.point_id) * (slowdown if is_candidate(spec) else 1.0)

    def account(spec: LaunchSpec) -> dict[str, Any]:
        tokens = kv_tokens[int(is_candidate(spec))]
        return {"version": "0.5.23", "max_total_num_tokens": tokens, "speculative_algorithm": "NEXTN"}

    def software(spec: LaunchSpec) -> EngineSoftware:
        found = torch[int(is_candidate(spec))]
        return EngineSoftware((("cuda", "12.8"), ("torch", found))) if found else EngineSoftware(unknown="no Python")

    own = {"account": account, "host": host, "slowness": slowness, "software": software}
    return FakeSlot(name, lambda _, spec: dies(spec), **own)  # type: ignore[arg-type]


def sweep_night(
    run: RunDirectory,
    scenario: Scenario,
    slots: list[FakeSlot],
    guide: PairGuide | None = None,
    conductor: SearchConductor | None = None,
) -> SweepResult:
    """What a run does with a night's scenario."""
    own = guide or PairGuide(lambda root: in_doubt(scenario, NightJudge(rules_of(scenario)), AT, root))
    sweep = Sweep(run.plan(scenario, [""] * len(slots)), list(slots), run, spec_of(scenario), Silent())
    sweep.follow(conductor or run_conductor(scenario, run, own))
    return sweep.run()


def spec_of(scenario: Scenario) -> Callable[[Any], LaunchSpec]:
    return lambda trial: launch_spec(scenario, "run", trial)


def night_on(root: Path, slots: list[FakeSlot], given: Scenario | None = None) -> Night:
    """A whole night, judged without a history."""
    scenario = night_scenario(given or nightly_scenario())
    run = RunDirectory.create(root, scenario)
    sweep_night(run, scenario, slots)
    run.close(complete=True)
    return measured_night(root, scenario, AT, NightJudge(rules_of(scenario))).night


def series(night: Night, metric: str, level: str = "", label: str | None = None) -> SeriesNight:
    """The only one of that kind."""
    found = [
        one
        for one in night.series
        if one.key.metric == metric and one.key.level == level and label in {None, one.measured.label}
    ]
    if len(found) != 1:
        pytest.fail(f"{len(found)} series of {metric} {level}: {[(s.key, s.measured.label) for s in night.series]}")
    return found[0]

"""Runs that follow a search, on slots that answer from a script."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.happening import SearchStep, TrialAsked, TrialEnded
from orchestrator.outcome import Label
from orchestrator.rankings.run_ranking import rank_run
from orchestrator.run_files import dataset
from orchestrator.run_files.journal import read_events
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.searches.course import NextPoint, PointSpared
from orchestrator.searches.search import Broken, Dead, Scored
from orchestrator.server_start import LaunchSpec
from orchestrator.slots.slot_port import SlotFacts, SlotLost
from orchestrator.sweeps import sweep as sweep_module
from orchestrator.sweeps.sweep import Sweep
from orchestrator.trial import Point
from tests.fakes.playoff import FarBehind, deeper_is_faster, depth_of
from tests.fakes.slot import FakeSlot
from tests.orchestrator.scenario_samples import small_scenario
from tests.orchestrator.sweeping import conducted_on, rows_per_point, search_on

SCENARIO = small_scenario(
    search="halving", sweep={"axes": {"speculative_num_steps": [0, 1, 2, 3]}}, recovery={"mode": False}
)


def slot(name: str, host: str = "east", **given: object) -> FakeSlot:
    return FakeSlot(name, host=host, slowness=deeper_is_faster, **given)  # type: ignore[arg-type]


def started(slots: list[FakeSlot]) -> list[str]:
    return sorted(name.rpartition("-")[2] for s in slots for name in s.launched)


def test_what_a_search_asks_is_started_and_what_it_is_told_decides_what_it_asks_next(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", SCENARIO)
    slots = [slot("a"), slot("b", "west")]
    done = search_on(run, SCENARIO, slots)
    run.close(complete=done.result.complete)

    assert done.result.complete
    assert started(slots) == ["r0", "r0", "r0", "r0", "r1", "r1"]
    values = {key[1]: told for key, told in done.search.told.items() if isinstance(told, Scored)}
    assert {told.host for told in values.values()} <= {"east", "west"}
    # 10 requests of 4 tokens, one each 100 ms: 40 tokens a second at depth 0, four times as many at depth 3.
    fastest = max(t.values["fast"].value or 0.0 for t in done.search.told.values() if isinstance(t, Scored))
    assert fastest == pytest.approx(160, rel=0.1)
    second = [(depth, told) for depth, repeat, told in done.search.heard if repeat == 1]
    assert sorted(second) == [(2, "Scored"), (3, "Scored")]
    asked = [h.why for h in done.shown if isinstance(h, TrialAsked)]
    assert asked == ["first round"] * 4 + ["playoff"] * 2
    assert [h.step.text for h in done.shown if isinstance(h, SearchStep)] == ["2 of 4 play off"]
    events = [e["event"] for e in read_events(run.paths.journal)]
    assert (events.count("trial_asked"), events.count("search_step")) == (6, 1)


def test_without_a_judge_no_slot_waits_for_a_decision_between_points(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", SCENARIO)
    done = search_on(run, SCENARIO, [slot("a")])

    assert not [h for h in done.shown if isinstance(h, NextPoint)]


def test_repeats_of_a_config_are_measured_on_different_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # All trials take as long: which is begun last is then no matter of their length.
    monkeypatch.setattr(sweep_module, "time", SimpleNamespace(monotonic=lambda: 0.0))
    run = RunDirectory.create(tmp_path / "run", SCENARIO)
    together = threading.Barrier(2, timeout=60)
    first_of: dict[str, str] = {}
    # What each host measured first is the fastest, and so what is started again.
    slots = [
        FakeSlot(host, host=host, slowness=lambda _, point: 0.25 if point.config_id in first_of.values() else 1.0)
        for host in ("east", "west")
    ]
    for one in slots:

        def side_by_side(point: Point, host: str = one.facts.host) -> None:
            first_of.setdefault(host, point.config_id)
            together.wait()

        one.on_point = side_by_side
    done = search_on(run, SCENARIO, slots)

    hosts: dict[str, set[str]] = {}
    for (config_id, _), told in done.search.told.items():
        assert isinstance(told, Scored)
        hosts.setdefault(config_id, set()).add(told.host)
    twice = [c for c, repeat in done.search.told if repeat == 1]
    assert [hosts[c] for c in twice] == [{"east", "west"}] * 2


def test_a_config_that_cannot_run_is_told_dead_with_its_evidence_and_its_repair_counts_for_it(tmp_path: Path) -> None:
    def script(name: str, spec: LaunchSpec) -> Label | None:
        settings = dict(spec.settings)
        short = depth_of(spec) == 3 and settings.get("mem_fraction_static", 0.85) != 0.95
        return Label.KV_BUDGET if short or depth_of(spec) == 1 else None

    repairing = small_scenario(search="halving", sweep={"axes": {"speculative_num_steps": [0, 1, 2, 3]}})
    for name, scenario, dead in (("repaired", repairing, {1}), ("as asked", SCENARIO, {1, 3})):
        run = RunDirectory.create(tmp_path / name, scenario)
        done = search_on(run, scenario, [slot("a", script=script)])

        assert {d for d, _, told in done.search.heard if told == "Dead"} == dead, name
        evidence = [told for told in done.search.told.values() if isinstance(told, Dead)]
        assert {(t.label, t.evidence) for t in evidence} == {("kv_budget", "the line that shows it")}
        assert sorted(d for d, repeat, told in done.search.heard if repeat == 1) == ([2, 3] if dead == {1} else [0, 2])


def test_what_broke_twice_is_told_broken_and_says_nothing_about_the_config(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", SCENARIO)
    broken = slot("a", script=lambda name, spec: Label.NCCL_INIT if depth_of(spec) == 2 else None)
    done = search_on(run, SCENARIO, [broken])

    told = [t for t in done.search.told.values() if isinstance(t, Broken)]
    assert [t.reason for t in told] == ["nccl_init: the line that shows it"]
    assert len(broken.launched) == 4 + 1 + 2


def test_a_lost_slot_costs_a_search_nothing_but_time(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", SCENARIO)
    slots = [slot("a", pause_s=0.01), slot("b", "west", pause_s=0.01)]

    def lose(point: Point) -> None:
        raise SlotLost("a: host is gone")

    slots[0].on_point = lose
    done = search_on(run, SCENARIO, slots)

    assert done.result.complete
    assert sorted(done.search.heard) == [(0, 0, "Scored"), (1, 0, "Scored"), (2, 0, "Scored"), (2, 1, "Scored"),
                                         (3, 0, "Scored"), (3, 1, "Scored")]  # fmt: skip


def test_a_slot_that_joins_while_all_that_a_search_asked_for_runs_takes_part_in_it(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", SCENARIO)
    first, late = slot("a", pause_s=0.01), slot("b", "west", pause_s=0.01)
    sweeps: list[Sweep] = []
    joined: list[bool] = []

    def join_once(point: Point) -> None:
        if not joined and sweeps[0]._trials.left == 0:
            joined.append(sweeps[0].needs_slots() and sweeps[0].join(late))
            first.refuses = "its GPUs stay held"  # so that what is asked next is left to the other

    first.on_point = join_once
    done = search_on(run, SCENARIO, [first], before=sweeps.append, most=1)

    assert joined == [True]
    assert done.result.complete
    assert late.launched


def test_a_fault_of_ours_in_one_slot_ends_the_search_instead_of_waiting_for_its_result(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", SCENARIO)
    slots = [slot("a", pause_s=0.01), slot("b", "west", pause_s=0.01)]

    def fault(point: Point) -> None:
        raise ValueError("a fault of ours")

    slots[0].on_point = fault
    with pytest.raises(ValueError, match="a fault of ours"):
        search_on(run, SCENARIO, slots)


def test_a_run_stopped_in_a_round_goes_on_there_and_nothing_is_measured_twice(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", SCENARIO)
    first = slot("a", pause_s=0.01)
    seen: list[Point] = []

    def cancel_at(sweep: Sweep) -> None:
        def on_point(point: Point) -> None:
            seen.append(point)
            if len(seen) == 4:
                sweep.cancel()

        first.on_point = on_point

    done = search_on(run, SCENARIO, [first], before=cancel_at)
    run.close(complete=done.result.complete)
    assert not done.result.complete

    again = RunDirectory.reopen(tmp_path / "run", SCENARIO)
    second = slot("b")
    resumed = search_on(again, SCENARIO, [second])
    again.close(complete=resumed.result.complete)

    assert resumed.result.complete
    assert not set(second.measured) & {p.point_id for p in seen[:3]}
    assert list(rows_per_point(again.paths).values()) == [10] * 12
    assert len(dataset.measured_parts(again.paths)) == 12
    finished = RunDirectory.reopen(tmp_path / "run", SCENARIO)
    idle = slot("c")
    assert search_on(finished, SCENARIO, [idle]).result.complete
    assert idle.launched == []


def test_points_that_cannot_matter_are_spared_with_the_reason_and_left_alone_by_resume(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", SCENARIO)
    slots = [slot("a")]
    done = search_on(run, SCENARIO, slots, FarBehind())
    run.close(complete=done.result.complete)

    spared = {(h.point.spec.level.value, h.reason) for h in done.shown if isinstance(h, PointSpared)}
    assert spared == {(4.0, "had lost by far")}
    assert len(slots[0].measured) == 12 - 2
    ends = [h.outcome for h in done.shown if isinstance(h, TrialEnded)]
    assert sorted(o.points for o in ends if o.kind == "measured") == [1, 1, 2, 2, 2, 2]

    again = RunDirectory.reopen(tmp_path / "run", SCENARIO)
    idle = slot("b")
    assert search_on(again, SCENARIO, [idle], FarBehind()).result.complete
    assert idle.measured == []
    assert {p["reason"] for p in again.state.of_search.spared.values()} == {"had lost by far"}


def test_the_ranking_says_why_a_point_was_not_measured_and_what_the_search_decided(tmp_path: Path) -> None:
    at_four = small_scenario(
        search="halving",
        sweep={"axes": {"speculative_num_steps": [0, 1, 2, 3]}},
        objectives=[
            {"name": "fast", "maximize": "output_throughput_tok_s", "at": {"concurrency": 1}},
            {"name": "busy", "maximize": "output_throughput_tok_s", "at": {"concurrency": 4}},
        ],
    )
    run = RunDirectory.create(tmp_path / "run", at_four)
    search_on(run, at_four, [slot("a")], FarBehind())
    run.close(complete=True)

    ranked = rank_run(run.paths.root)
    fails = {r.settings.get("speculative_num_steps", 0): r.gates_failed for r in ranked.rankings[1].rows}
    assert fails == {0: ("not measured at C=4: had lost by far",), 1: ("not measured at C=4: had lost by far",),
                     2: (), 3: ()}  # fmt: skip
    assert "search: 2 of 4 play off" in ranked.notes
    assert [step["name"] for step in ranked.as_json()["search"]] == ["playoff"]


def test_a_slot_that_is_lost_between_points_leaves_the_rest_of_its_course_to_another(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", SCENARIO)
    slots = [slot("a", pause_s=0.01), slot("b", "west", pause_s=0.01)]
    lost: list[Point] = []

    def lose_second(point: Point) -> None:
        if point.spec.level.value == 4 and not lost:
            lost.append(point)
            raise SlotLost("a: host is gone")

    slots[0].on_point = lose_second
    done = search_on(run, SCENARIO, slots, FarBehind())

    assert lost
    assert done.result.complete
    assert list(rows_per_point(run.paths).values()) == [10] * 10
    assert slots[1].measured.count(lost[0].point_id) == 1


@pytest.mark.parametrize(
    "search",
    ["halving", "ceiling", {"method": "optuna", "budget_trials": 5, "best": 1, "best_repeats": 2}],
    ids=["halving", "ceiling", "optuna"],
)
def test_hosts_of_two_classes_have_a_search_of_their_own_each(tmp_path: Path, search: Any) -> None:
    classes = ("4x L4", "8x B200")
    scenario = small_scenario(search=search, sweep={"axes": {"speculative_num_steps": [1, 2, 3]}})
    run = RunDirectory.create(tmp_path / "run", scenario)
    run.keep_classes(classes)
    slots = [slot(f"{i}", f"host{i}") for i in range(2)]
    for one, host_class in zip(slots, classes, strict=True):
        one.facts = SlotFacts(one.facts.name, one.facts.host, ("0",), 1, host_class)
    result = conducted_on(run, scenario, slots)
    run.close(complete=result.complete)

    assert result.complete
    assert all(len(one.launched) >= 2 for one in slots)
    rankings = rank_run(tmp_path / "run").rankings
    assert [(r.host_class, r.winner is not None) for r in rankings] == [("4x L4", True), ("8x B200", True)]


def ceiling_on(
    root: Path, dies: Callable[[str, int], bool], hosts: tuple[str, ...] = ("east", "west"), **keys: Any
) -> tuple[list[FakeSlot], list[dict[str, Any]]]:
    """A search of the depth whose servers die as told (host, depth): its slots, and what it decided."""
    scenario = small_scenario(
        search={"method": "ceiling", **keys}, sweep={"axes": {"speculative_num_steps": [1, 2, 3, 4, 5, 6]}}
    )
    run = RunDirectory.create(root, scenario)

    def fate(name: str, spec: LaunchSpec) -> Label | None:
        return Label.KV_BUDGET if dies(name, depth_of(spec)) else None

    slots = [slot(host, host, script=fate) for host in hosts]
    assert conducted_on(run, scenario, slots).complete
    run.close(complete=True)
    return slots, rank_run(root).as_json()["search"]


def test_both_sides_of_a_ceiling_are_started_again_on_the_other_host(tmp_path: Path) -> None:
    slots, steps = ceiling_on(tmp_path / "run", lambda host, depth: depth > 4)

    (ceiling,) = steps
    assert ceiling["name"] == "ceiling"
    assert "is 4, served 2 of 2 on 2 hosts; at 5: died 2 of 2 on 2 hosts (kv_budget: the line" in ceiling["text"]
    assert {k: sorted(ceiling["facts"][k][v]) for k, v in (("served", "served_on"), ("beyond", "died_on"))} == {
        "served": ["east", "west"],
        "beyond": ["east", "west"],
    }
    assert sum(name.endswith("-r1") for one in slots for name in one.launched) == 2


def test_a_host_that_serves_what_another_does_not_is_found_and_told(tmp_path: Path) -> None:
    _, steps = ceiling_on(tmp_path / "run", lambda host, depth: depth > (4 if host == "east" else 5))

    names = [step["name"] for step in steps]
    assert names == ["disagreement", "ceiling"]
    assert (
        "starts of speculative_num_steps=5 disagree: it served on west and died on east (kv_budget" in steps[0]["text"]
    )
    assert steps[1]["facts"]["value"] == 4


def test_the_starts_of_a_ceiling_that_is_not_verified_are_made_once(tmp_path: Path) -> None:
    slots, (ceiling,) = ceiling_on(tmp_path / "run", lambda host, depth: depth > 4, verify=0)

    assert not [name for one in slots for name in one.launched if name.endswith("-r1")]
    assert "at 5: died 1 of 1 on 1 host" in ceiling["text"]


def test_how_a_race_stood_at_its_end_is_told_once_and_stored(tmp_path: Path) -> None:
    scenario = small_scenario(search={"method": "halving", "budget_trials": 3})
    run = RunDirectory.create(tmp_path / "run", scenario)
    conducted_on(run, scenario, [slot("a")])
    run.close(complete=True)

    ranked = rank_run(run.paths.root)
    verdicts = [step["text"] for step in ranked.as_json()["search"] if step["name"] == "verdict"]
    assert len(verdicts) == 1
    assert verdicts[0] == (
        "fast: speculative_num_steps=2 leads; probability <0.01 that another finalist is better by more than 2.0%. "
        "Probability <0.01 that any config is, started or not, if none need be like its neighbours"
    )
    assert f"search: {verdicts[0]}" in ranked.notes

"""What a run is doing, as its happenings tell; how long it will still take; how that fits on a terminal."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from orchestrator.happening import (
    BestSoFar,
    PointBegan,
    PointEnded,
    SearchStep,
    SlotEnded,
    TelemetryArrived,
    TrialAsked,
    TrialBegan,
    TrialEnded,
    TrialSpared,
)
from orchestrator.outcome import Diagnosis, Failed, Infeasible, Label, Measured, Outcome, Phase
from orchestrator.planning.planner import make_plan
from orchestrator.searches.search import Step
from orchestrator.server_start import ServerReady, StartProgress
from orchestrator.telemetry import GpuSample, Sample, ServerSample
from orchestrator.trial import Trial
from orchestrator.watching.live_state import LiveState
from orchestrator.watching.live_table import live_table
from orchestrator.watching.live_view import BestView, Counts, LiveView, SlotView, TimeLeft, counts_text, duration_text
from orchestrator.watching.time_left import SearchBounds, TrialTimes, plan_left_s, search_left
from tests.fakes.slot import report
from tests.orchestrator.scenario_samples import small_scenario

PLAN = make_plan(small_scenario(), 1)
FIRST, SECOND, THIRD = PLAN.trials


def state(*slots: str, bounds: SearchBounds | None = None) -> LiveState:
    return LiveState(PLAN, slots or ("host/0",), 0.0, bounds)


def slot_of(told: LiveState, now_s: float, name: str = "host/0") -> SlotView:
    (found,) = [slot for slot in told.view(now_s).slots if slot.name == name]
    return found


def ended(trial: Trial, outcome: Outcome, **more: Any) -> TrialEnded:
    return TrialEnded(trial, 1, outcome, None, "", b"", **more)


def test_a_start_shows_its_phase_what_of_it_is_done_and_for_how_long_it_is_in_it() -> None:
    told = state()
    told.saw("host/0", TrialBegan(FIRST, 2, ""), 10.0)
    began = slot_of(told, 11.0)
    graphs = StartProgress(FIRST.trial_id, Phase.GRAPH_TARGET, 30.0, done=3, total=12, free_gib=7.5)
    told.saw("host/0", graphs, 20.0)
    told.saw("host/0", replace(graphs, done=4), 24.0)

    assert (began.state, began.doing, began.trial_id) == ("starting", "starting (attempt 2)", FIRST.trial_id)
    assert slot_of(told, 25.0) == replace(
        began, doing="starting: graph_target 4/12", for_s=5.0, phase="graph_target", done=4, total=12, free_gib=7.5
    )


def test_a_point_shows_the_tokens_of_requests_that_ended_until_the_server_tells_its_speed() -> None:
    told = state()
    told.saw("host/0", TrialBegan(FIRST, 1, ""), 0.0)
    told.saw("host/0", ServerReady(FIRST.trial_id, "", None, 1.0, ()), 1.0)
    told.saw("host/0", PointBegan(FIRST.points[0]), 2.0)
    nothing_yet = slot_of(told, 3.0)
    told.produced("host/0", 300)
    counted = slot_of(told, 5.0)
    server = ServerSample(running_requests=4, queued_requests=2, token_usage=0.25, generation_tok_s=140.0)
    fullest = (GpuSample("0", memory_used_gib=70.0, memory_total_gib=80.0), GpuSample("1", 75.0, 80.0))
    told.saw("host/0", TelemetryArrived(FIRST, 1, (Sample(5.0, 5.0, 4.0, server, fullest),)), 5.0)
    seen = slot_of(told, 5.0)

    assert (nothing_yet.state, nothing_yet.doing, nothing_yet.tok_s) == ("measuring", "chat C=1", None)
    assert counted.tok_s == 100.0
    assert (seen.tok_s, seen.running, seen.queued, seen.kv_usage, seen.free_gib) == (140.0, 4, 2, 0.25, 5.0)


def test_the_next_trial_of_a_slot_shows_nothing_of_the_last() -> None:
    told = state()
    told.saw("host/0", TrialBegan(FIRST, 1, ""), 0.0)
    told.saw("host/0", PointBegan(FIRST.points[0]), 1.0)
    told.produced("host/0", 50)
    told.saw("host/0", TelemetryArrived(FIRST, 1, (Sample(1.0, 1.0, 1.0, ServerSample(3)),)), 2.0)
    told.saw("host/0", ended(FIRST, Measured(2)), 9.0)
    waiting = slot_of(told, 10.0)
    told.saw("host/0", TrialBegan(SECOND, 1, ""), 10.0)

    assert waiting == SlotView("host/0", for_s=1.0)
    assert (slot_of(told, 11.0).tok_s, slot_of(told, 11.0).running) == (None, None)


def test_a_slot_that_was_lost_or_refuses_says_so_and_one_that_joins_is_shown() -> None:
    told = state("a/0", "b/0")
    told.saw("a/0", TrialBegan(FIRST, 1, ""), 0.0)
    broke = Failed(Diagnosis(Label.HOST_LOST, Phase.SERVING, "gone"))
    told.saw("a/0", ended(FIRST, broke, refused="GPU memory did not come back"), 1.0)
    told.saw("a/0", SlotEnded(refused="GPU memory did not come back"), 1.0)
    told.saw("b/0", SlotEnded(lost=True), 2.0)
    told.saw("c/0", TrialBegan(SECOND, 1, ""), 3.0)

    assert [(s.name, s.state) for s in told.view(3.0).slots] == [
        ("a/0", "unused"), ("b/0", "lost"), ("c/0", "starting"),
    ]  # fmt: skip


def test_the_counts_are_those_of_trials_that_have_ended_for_good() -> None:
    told = state()
    told.saw("host/0", PointEnded(FIRST.points[0], 1, report(FIRST.points[0], 3), ""), 1.0)
    told.saw("host/0", ended(FIRST, Measured(2)), 1.0)
    told.saw("host/0", ended(SECOND, Infeasible(Diagnosis(Label.KV_BUDGET, Phase.KV_POOL, "no memory"))), 2.0)
    told.saw("host/0", TrialSpared(THIRD), 2.0)

    assert told.view(3.0).counts == Counts(2, 2, 1, 4, measured=1, infeasible=1)


def test_what_leads_is_the_last_that_was_told_of_each_objective() -> None:
    told = state()
    config = FIRST.config.config_id
    told.saw("", BestSoFar("fast", "unknown-config", "100 tok/s", "", 100.0), 1.0)
    told.saw("", BestSoFar("fast", config, "120 tok/s at C=1", "", 120.0), 2.0)

    (best,) = told.view(2.0).best
    assert best == BestView("fast", told.labels[config], "120 tok/s at C=1", 120.0)


# Time left


def timed(trial: Trial, estimated_s: float) -> Trial:
    return replace(trial, estimated_s=estimated_s)


def test_before_anything_was_measured_the_plan_tells_the_time_left() -> None:
    trials = [timed(t, 60.0) for t in PLAN.trials]

    assert plan_left_s(TrialTimes(), [(trials[0], 20.0)], trials[1:], {"": 1}) == 160.0
    assert plan_left_s(TrialTimes(), [(trials[0], 20.0)], trials[1:], {"": 2}) == 100.0


def test_slots_are_expected_to_take_the_longest_that_waits() -> None:
    waiting = [timed(t, s) for t, s in zip(PLAN.trials, (10.0, 10.0, 20.0), strict=True)]

    assert plan_left_s(TrialTimes(), [], waiting, {"": 2}) == 20.0


def test_a_plan_that_was_wrong_by_half_is_taken_for_so_wrong_everywhere() -> None:
    times = TrialTimes()
    times.learn(timed(FIRST, 60.0), 30.0)

    assert times.expected_s(timed(SECOND, 40.0)) == 20.0
    assert times.expected_s(timed(FIRST, 60.0)) == 30.0


def test_a_trial_that_takes_longer_than_it_should_is_not_expected_to_have_ended_before() -> None:
    assert plan_left_s(TrialTimes(), [(timed(FIRST, 60.0), 500.0)], [], {"": 1}) == 0.0


@given(st.lists(st.floats(0.1, 100.0), max_size=6), st.lists(st.floats(0.0, 100.0), max_size=3), st.integers(1, 4))
def test_the_time_left_is_never_less_than_the_work_shared_evenly_nor_more_than_all_of_it(
    waiting: list[float], running_since: list[float], slots: int
) -> None:
    running = [(timed(FIRST, 50.0), since) for since in running_since]
    left = plan_left_s(TrialTimes(), running, [timed(SECOND, s) for s in waiting], {"": slots})
    rest = [max(50.0 - since, 0.0) for since in running_since]
    work = sum(waiting) + sum(rest)

    assert left <= work + 1e-6
    assert left >= work / max(slots, len(rest), 1) - 1e-6
    assert left >= max([*waiting, *rest], default=0.0) - 1e-6


def test_classes_of_hosts_do_not_share_their_work() -> None:
    east, west = (replace(timed(t, 60.0), host_class=c) for t, c in ((FIRST, "east"), (SECOND, "west")))

    assert plan_left_s(TrialTimes(), [], [east, east, west], {"east": 2, "west": 1}) == 60.0


def test_a_search_takes_between_its_least_and_its_most_starts_and_at_least_what_it_asked_for() -> None:
    bounds = SearchBounds(least=4, most=20, before=2)

    assert search_left(10.0, ended=0, waiting=1, running_s=[], bounds=bounds, slots=2) == TimeLeft(10.0, 90.0)
    assert search_left(10.0, ended=5, waiting=2, running_s=[0.0], bounds=bounds, slots=1) == TimeLeft(30.0, 130.0)
    assert search_left(10.0, ended=40, waiting=0, running_s=[], bounds=bounds, slots=1) == TimeLeft(0.0, 0.0)


def test_the_time_that_is_left_of_a_search_runs_down_while_its_servers_run() -> None:
    told = LiveState(replace(PLAN, slots=()), ["host/0"], 0.0, SearchBounds(3, 9))
    told.saw("", TrialAsked(FIRST, "first start"), 0.0)
    told.saw("host/0", TrialBegan(FIRST, 1, ""), 0.0)
    told.saw("host/0", ended(FIRST, Measured(2)), 100.0)
    told.saw("", TrialAsked(SECOND, "the next"), 100.0)
    told.saw("host/0", TrialBegan(SECOND, 1, ""), 100.0)

    # A start takes 100 s so far; one that takes longer does not eat into those after it.
    assert told.view(100.0).left == TimeLeft(200.0, 800.0)
    assert told.view(130.0).left == TimeLeft(170.0, 770.0)
    assert told.view(500.0).left == TimeLeft(100.0, 700.0)


def test_a_search_says_how_many_starts_it_may_still_make() -> None:
    told = LiveState(replace(PLAN, slots=()), ["host/0"], 0.0, SearchBounds(3, 9))
    told.saw("", TrialAsked(FIRST, "first start"), 0.0)
    told.saw("host/0", TrialBegan(FIRST, 1, ""), 0.0)
    told.saw("host/0", ended(FIRST, Measured(2)), 100.0)

    assert counts_text(told.view(100.0)) == (
        "1 of 1 trials, 0 of 2 points, 0 infeasible, 0 failed, 100 s, a search of at most 9 starts goes on, "
        "3 min to 13 min left"
    )
    assert counts_text(replace(told.view(100.0), ended=True)) == (
        "1 of 1 trials, 0 of 2 points, 0 infeasible, 0 failed, 100 s"
    )


def test_each_pair_of_a_night_that_is_made_anew_is_two_more_starts() -> None:
    told = LiveState(replace(PLAN, slots=()), ["host/0"], 0.0, SearchBounds(6, 12, each_void=2))
    told.saw("", TrialAsked(FIRST, "pair 1, pinned first"), 0.0)
    told.saw("host/0", TrialBegan(FIRST, 1, ""), 0.0)
    told.saw("host/0", ended(FIRST, Measured(2)), 100.0)
    text = "1 of 1 trials, 0 of 2 points, 0 infeasible, 0 failed, 100 s, a search of at most {} starts (and 2 more for "

    assert counts_text(told.view(100.0)) == text.format(12) + "each pair that breaks) goes on, 8 min to 18 min left"
    told.saw("", SearchStep(Step("void", "pair 1 says nothing: host lost"), ""), 100.0)
    assert counts_text(told.view(100.0)) == text.format(14) + "each pair that breaks) goes on, 12 min to 22 min left"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (119.0, "119 s"), (120.0, "2 min"), (7199.0, "120 min"), (9000.0, "2.5 h")]
)
def test_durations_are_told_in_the_unit_that_fits(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


# On disk and on terminals


VIEW = LiveView(
    Counts(1, 3, 2, 6, 1),
    tuple(SlotView(f"host/{i}", "measuring" if i % 2 else "waiting", "depth=3", "chat C=1", 12.0) for i in range(40)),
    (BestView("fast", "depth=3", "120 tok/s at C=1", 120.0),),
    61.0,
    TimeLeft(30.0, 30.0),
    recent=("00:10 host/0  depth=3: ready after 9.0 s",),
    beat=7,
    told_unix_s=1e9,
)


def test_a_view_comes_back_from_json_and_a_later_release_may_say_more() -> None:
    told = VIEW.as_json()

    assert LiveView.from_json(told) == VIEW
    told["slots"][0]["of_a_later_release"] = told["more"] = 1
    assert LiveView.from_json(told) == VIEW


@pytest.mark.parametrize("told", [None, [], {}, {"schema": 99}, {"schema": 1}, {"schema": 1, "counts": 3, "slots": []}])
def test_what_is_no_view_is_refused(told: Any) -> None:
    with pytest.raises(ValueError, match="no state of a run"):
        LiveView.from_json(told)


def drawn(view: LiveView, width: int, height: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=False)
    console.print(live_table(view, width, height))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_after_the_end_there_are_picks_and_no_empty_table() -> None:
    best = (BestView("fast", "depth=3", "512.4 tok/s at C=4", 512.4),)

    assert [line.rstrip() for line in drawn(LiveView(Counts(2, 2, 4, 4), best=best, ended=True), 80, 24)] == [
        "2 of 2 trials, 4 of 4 points, 0 infeasible, 0 failed, 0 s",
        "pick for fast: 512.4 tok/s at C=4, depth=3",
    ]


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 300])
@pytest.mark.parametrize("height", [8, 24, 60])
def test_the_table_fits_whatever_the_terminal_is(width: int, height: int) -> None:
    long = replace(VIEW.slots[0], config="a_setting_with_a_long_name=" + "x" * 200, name="a-long-host-name.example/0")
    lines = drawn(replace(VIEW, slots=(long, *VIEW.slots)), width, height)

    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_long_names_push_nothing_else_out_of_a_terminal_of_80_columns() -> None:
    long = replace(
        VIEW.slots[0], name="gpu-host-07.cluster.internal/3", doing="graph_draft 12/52", for_s=75.0, tok_s=12345.6,
        config="speculative_num_steps=3, speculative_eagle_topk=4, mem_fraction_static=0.85",
    )  # fmt: skip

    assert [line.rstrip() for line in drawn(replace(VIEW, slots=(long,)), 80, 24)[:4]] == [
        "slot              config                          doing               for  tok/s",
        "\u2026ster.internal/3  speculative_num_steps=3,        graph_draft 12/52  75 s  12346",
        "                  speculative_eagle_topk=4,",
        "                  mem_fraction_static=0.85",
    ]
    low = drawn(replace(VIEW, slots=(long,) * 8), 80, 12)
    assert low[1] == "\u2026ster.internal/3  speculative_num_steps=3, spec\u2026  graph_draft 12/52  75 s  12346"


def test_what_leads_is_told_with_all_its_settings_where_there_is_room() -> None:
    settings = ", ".join(f"a_setting_with_a_long_name_{i}={i}" for i in range(5))
    view = replace(VIEW, best=(replace(VIEW.best[0], config=settings),))

    told = [line for line in drawn(view, 80, 60) if "long_name" in line]
    assert [line.count("=") for line in told] == [2, 2, 2]
    assert told[0] == "best so far for fast: 120 tok/s at C=1, a_setting_with_a_long_name_0=0,"


def test_slots_at_work_are_shown_first_and_the_rest_is_told() -> None:
    lines = drawn(VIEW, 120, 16)

    assert [line.split()[0] for line in lines[1:-3]] == [f"host/{i}" for i in range(1, 19, 2)]
    assert lines[-3:] == [
        "and 31 more slots: 11 measuring, 20 waiting",
        "1 of 3 trials, 2 of 6 points, 0 infeasible, 0 failed, 61 s, about 30 s left",
        "best so far for fast: 120 tok/s at C=1, depth=3",
    ]


SHORT = SlotView("vm/0", "measuring", "speculative_num_steps=2", "chat C=8", 3, tok_s=2859, running=8, free_gib=6.6)
LONG = SlotView(
    "gpu-17.cluster.internal/3", "starting", "speculative_num_steps=10, mem_fraction_static=0.85",
    "starting: graph_target 3/12", 412.0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("slots", "width", "columns"),
    [
        # What fits is shown, whatever the width is: 80 columns are enough for short names.
        ((SHORT,), 80, "slot config doing for tok/s requests free GiB"),
        ((SHORT, LONG), 130, "slot config doing for tok/s requests free GiB"),
        ((SHORT, LONG), 100, "slot config doing for tok/s free GiB"),
        ((SHORT, LONG), 80, "slot config doing for tok/s"),
        ((SHORT, LONG), 60, "slot config doing for"),
        ((SHORT, LONG), 40, "slot doing for"),
        ((SHORT,), 40, "slot config doing for tok/s"),
        ((SHORT,), 34, "slot config doing for"),
    ],
)
def test_columns_go_only_where_there_is_no_room_for_them(slots: tuple[SlotView, ...], width: int, columns: str) -> None:
    head, *rows = drawn(replace(VIEW, slots=slots), width, 20)

    assert head.split() == columns.split()
    assert all(len(row) <= width for row in rows)


def test_a_setting_that_is_cut_keeps_its_value() -> None:
    _, row, *_ = drawn(replace(VIEW, slots=(SHORT,)), 40, 20)

    assert row.split()[:2] == ["vm/0", "\u2026num_steps=2"]


def test_a_narrow_terminal_wraps_how_far_the_run_is() -> None:
    lines = drawn(VIEW, 40, 24)

    assert lines[-5:] == [
        "1 of 3 trials, 2 of 6 points, 0",
        "infeasible, 0 failed, 61 s, about 30 s",
        "left",
        "best so far for fast: 120 tok/s at C=1,",
        "depth=3",
    ]


def test_names_are_shown_as_they_are_not_as_markup() -> None:
    odd = replace(VIEW.slots[0], config="a=[red]b[/red]", name="[bold]h")

    assert drawn(replace(VIEW, slots=(odd,)), 120, 24)[1].startswith("[bold]h  a=[red]b[/red]")


def test_the_time_left_of_a_large_plan_runs_down_between_two_computations() -> None:
    axes = {"speculative_num_steps": [0, 1, 2], "max_running_requests": list(range(1, 401))}
    plan = make_plan(small_scenario(sweep={"axes": axes}), 1)
    told = LiveState(plan, ["host/0"], 0.0)
    first, later = (told.view(now_s).left for now_s in (0.0, 1.1))

    assert first is not None
    assert later == TimeLeft(first.low_s - 1.1, first.high_s - 1.1)


def test_what_a_search_decides_is_no_slot() -> None:
    told = LiveState(make_plan(small_scenario(search="halving"), 1), ["host/0"], 0.0)
    told.saw("search", SearchStep(Step("inferred", "1 left out"), ""), 1.0)

    assert [slot.name for slot in told.view(2.0).slots] == ["host/0"]

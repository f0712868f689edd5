"""What the phases of a start may take, by defaults and by what earlier starts took."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.outcome import Phase, PhaseFact
from orchestrator.server_start import PhaseBudget
from orchestrator.starts.phase_budget import DEFAULTS, SilenceLimits, bound_s, phase_budgets
from orchestrator.starts.phase_history import PhaseHistory, Taken, graph_count, phase_seconds
from orchestrator.starts.start_history import PastStart

NOTHING_SAID = SilenceLimits()


def start(weights_s: float, graphs_s: float = 20.0, gpu_count: int = 4, **settings: Any) -> PastStart:
    """A start that loaded for so long and captured for so long."""
    at = [0.0, 5.0, 5.0 + weights_s, 5.0 + weights_s + graphs_s]
    phases = (
        PhaseFact(Phase.LAUNCH, at[0], at[1]),
        PhaseFact(Phase.WEIGHTS, at[1], at[2]),
        PhaseFact(Phase.GRAPH_TARGET, at[2], at[3]),
        PhaseFact(Phase.READY, at[3]),
    )
    return PastStart("host-a", gpu_count, "0.5.23", settings, phases, "measured")


def budget(phase: Phase, past: list[PastStart], limits: SilenceLimits = NOTHING_SAID, **settings: Any) -> PhaseBudget:
    found = phase_budgets(PhaseHistory(past), settings, limits, gpu_count=4)
    return next(budget for budget in found if budget.phase is phase)


def test_without_history_every_phase_has_its_default_and_the_load_that_took_888_s_would_be_no_surprise() -> None:
    assert {b.phase for b in phase_budgets(PhaseHistory(), {}, SilenceLimits(), gpu_count=4)} == set(DEFAULTS)
    no_history = "default, no earlier start is known"
    assert budget(Phase.WEIGHTS, []) == PhaseBudget(Phase.WEIGHTS, 900.0, 600.0, no_history, no_history)
    assert budget(Phase.SERVING, []).silent_s == 120.0


@pytest.mark.parametrize(
    ("seconds", "total_s", "source"),
    [
        ([95.0], 410.0, "1 earlier start took at most 95 s"),
        ([95.0, 20.0], 315.0, "2 earlier starts took at most 95 s"),
        ([95.0, 20.0, 20.0], 267.5, "3 earlier starts took at most 95 s"),
        ([95.0, 20.0, 20.0, 20.0, 20.0], 220.0, "5 earlier starts took at most 95 s"),
    ],
)
def test_the_longest_load_counts_with_a_factor_that_falls_with_the_starts_that_are_known(
    seconds: list[float], total_s: float, source: str
) -> None:
    learnt = budget(Phase.WEIGHTS, [start(s) for s in seconds])

    assert (learnt.total_s, learnt.source) == (total_s, source)


def test_a_phase_that_was_always_quick_may_be_silent_for_a_minute_and_never_longer_than_by_default() -> None:
    quick, slow = budget(Phase.WEIGHTS, [start(2.0)] * 5), budget(Phase.WEIGHTS, [start(888.0)] * 5)

    assert (quick.silent_s, quick.silent_source) == (60.0, "5 earlier starts took at most 2 s")
    assert (slow.total_s, slow.silent_s) == (1806.0, 600.0)


def test_what_the_user_says_about_silence_wins_over_what_was_learnt() -> None:
    past = [start(2.0)] * 5
    by_phase = budget(Phase.WEIGHTS, past, SilenceLimits(phase_s=1200.0))
    assert (by_phase.silent_s, by_phase.silent_source, by_phase.total_s) == (1200.0, "timeouts.phase_s", 34.0)
    both = SilenceLimits(silent_s=45.0, phase_s=1200.0)
    assert budget(Phase.WEIGHTS, past, both).silent_s == 45.0
    assert budget(Phase.SERVING, past, both).silent_s == 45.0
    assert budget(Phase.SERVING, past, SilenceLimits(phase_s=1200.0)).silent_s == 120.0


def test_more_graphs_to_capture_make_the_budget_of_the_capture_longer_and_fewer_do_not_make_it_shorter() -> None:
    past = [start(10.0, 20.0, cuda_graph_bs_decode=[1, 2, 4, 8])] * 5

    assert budget(Phase.GRAPH_TARGET, past, cuda_graph_bs_decode=[1, 2, 4, 8]).total_s == 70.0
    assert budget(Phase.GRAPH_TARGET, past, cuda_graph_bs_decode=list(range(1, 13))).total_s == 150.0
    assert budget(Phase.GRAPH_TARGET, past, cuda_graph_bs_decode=[1]).total_s == 70.0
    assert budget(Phase.GRAPH_TARGET, past).total_s == 70.0
    assert budget(Phase.WEIGHTS, past, cuda_graph_bs_decode=list(range(1, 13))).total_s == 50.0


@pytest.mark.parametrize(
    ("settings", "graphs"),
    [
        ({"cuda_graph_max_bs_decode": 1}, 1.0),
        ({"cuda_graph_max_bs_decode": 16}, 6.0),
        ({"cuda_graph_max_bs": 32}, 8.0),  # an older release's word for it
        ({"cuda_graph_max_bs_decode": 512}, 68.0),
        ({"cuda_graph_bs_decode": [1, 2, 16], "cuda_graph_max_bs_decode": 512}, 3.0),
        ({}, None),
    ],
)
def test_graphs_are_counted_as_sglang_lists_them(settings: dict[str, Any], graphs: float | None) -> None:
    assert graph_count(settings) == graphs


def test_starts_on_as_many_gpus_count_and_others_only_where_there_are_none() -> None:
    assert budget(Phase.WEIGHTS, [start(95.0), start(500.0, gpu_count=1)]).total_s == 410.0
    assert budget(Phase.WEIGHTS, [start(500.0, gpu_count=1)]).total_s == 2030.0


def test_how_long_earlier_servers_served_says_nothing_about_silence() -> None:
    phases = (PhaseFact(Phase.SERVING, 100.0, 103.0), PhaseFact(Phase.SHUTDOWN, 103.0))
    past = [PastStart("host-a", 4, None, {}, phases, "measured")]

    assert budget(Phase.SERVING, past) == PhaseBudget(Phase.SERVING, float("inf"), 120.0, "default", "default")


def test_the_launch_of_another_kind_of_server_is_all_of_its_start() -> None:
    found = phase_budgets(PhaseHistory(), {}, SilenceLimits(), gpu_count=0, other_engine=True)

    assert (found[0].phase, found[0].total_s, found[0].silent_s) == (Phase.LAUNCH, 1800.0, 600.0)


def test_a_phase_lasts_until_the_next_begins_and_one_that_the_server_died_in_says_nothing() -> None:
    died = (PhaseFact(Phase.LAUNCH, 0.0, 4.0), PhaseFact(Phase.WEIGHTS, 5.0))

    assert phase_seconds(died) == {Phase.LAUNCH: 5.0}
    assert phase_seconds(()) == {}


@given(st.lists(st.floats(0.0, 5000.0), min_size=1, max_size=30))
def test_no_start_that_was_seen_would_be_over_the_bound_that_is_made_of_it(seconds: list[float]) -> None:
    assert bound_s(Taken(len(seconds), max(seconds))) >= max(seconds) + 29.9


def test_what_many_starts_took_is_kept_as_one_number_for_each_number_of_graphs_and_gpus() -> None:
    past = [
        start(100.0, 20.0, cuda_graph_max_bs_decode=16),
        start(90.0, 30.0, cuda_graph_max_bs_decode=16),
        start(80.0, 40.0, cuda_graph_max_bs_decode=32),
        start(500.0, 500.0, gpu_count=8),
    ]
    history = PhaseHistory(past)
    now = {"cuda_graph_max_bs_decode": 48}

    assert history.taken(Phase.WEIGHTS, now, 4) == Taken(3, 100.0)
    assert history.taken(Phase.GRAPH_TARGET, now, 4) == Taken(
        3, 50.0
    )  # 30 s for 6 graphs, 40 s for 8, now there are 10
    assert history.taken(Phase.WEIGHTS, now, 2) == Taken(4, 500.0)
    assert history.taken(Phase.DRAFT_WEIGHTS, now, 4) is None

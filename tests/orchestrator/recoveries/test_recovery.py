"""What the policy does after a death, label by label, with literal numbers."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.outcome import INFEASIBLE, Label
from orchestrator.recoveries.failed_lineage import Situation
from orchestrator.recoveries.recovery import Again, NoMove, Repair, Rights, decide
from orchestrator.recoveries.remedies import REMEDIES, Kind
from tests.orchestrator.recoveries.deaths import BASE, LOAD, changed, decided, died, try_at


def test_every_label_has_a_remedy_and_only_what_is_infeasible_is_repaired() -> None:
    assert set(REMEDIES) == set(Label)
    assert {label for label, remedy in REMEDIES.items() if remedy.kind is Kind.REPAIR} < INFEASIBLE
    assert all(bool(remedy.moves) is (remedy.kind is Kind.REPAIR) for remedy in REMEDIES.values())
    assert [label for label in INFEASIBLE if REMEDIES[label].kind not in {Kind.REPAIR, Kind.NOTHING}] == []


@pytest.mark.parametrize(
    "label",
    [
        Label.OOM_WEIGHTS, Label.FLAG_INVALID, Label.CONFIG_CONFLICT, Label.KERNEL_ARCH, Label.JIT_TOOLCHAIN,
        Label.CAPTURE_ERROR, Label.CUDA_IMA, Label.MODEL_MISSING,
    ],
)  # fmt: skip
def test_what_would_end_the_same_way_is_never_started_again(label: Label) -> None:
    decision = decided(died(label))

    assert isinstance(decision, NoMove)
    assert decision.reason


@pytest.mark.parametrize(
    ("label", "how"),
    [
        (Label.WATCHDOG_HANG, Kind.ELSEWHERE), (Label.START_TIMEOUT, Kind.ELSEWHERE),
        (Label.SEGFAULT_ABORT, Kind.ELSEWHERE), (Label.NCCL_INIT, Kind.ELSEWHERE),
        (Label.NCCL_TIMEOUT, Kind.ELSEWHERE), (Label.HOST_LOST, Kind.ELSEWHERE),
        (Label.HEALTH_STALE, Kind.ELSEWHERE), (Label.GPU_OCCUPIED, Kind.CLEAN),
        (Label.PORT_IN_USE, Kind.CLEAN), (Label.HOST_OOM, Kind.ALONE),
    ],
)  # fmt: skip
def test_what_broke_is_started_once_more_and_not_a_third_time(label: Label, how: Kind) -> None:
    assert decided(died(label)) == Again(how)
    assert isinstance(decided(died(label), starts=2), NoMove)


def test_a_graph_death_with_numbers_lowers_the_fraction_by_what_was_short_and_caps_the_capture() -> None:
    failed = died(
        Label.OOM_GRAPH_DRAFT, wanted_gib=7.5, free_gib=2.3, total_gib=94.97, before_load_gib=94.1, captured_batch=256
    )
    decision = decided(failed)

    # (5.20 + 0.02 * 94.97) / 94.1 = 0.0754
    assert changed(decision) == {"cuda_graph_max_bs_decode": 16, "mem_fraction_static": 0.62}
    assert isinstance(decision, Repair)
    assert [c.why for c in decision.changes] == [
        "the load runs at most 16 requests at once",
        "5.20 GiB short and 1.90 GiB margin of 94.10 GiB",
    ]


def test_a_graph_death_without_numbers_takes_fixed_steps() -> None:
    assert changed(decided(died(Label.OOM_GRAPH_TARGET))) == {
        "cuda_graph_max_bs_decode": 16,
        "mem_fraction_static": 0.65,
    }


def test_a_fraction_left_open_is_the_one_that_the_server_resolved_or_sglangs_usual_one() -> None:
    settings = {"max_running_requests": 16}

    assert changed(decided(died(Label.OOM_GRAPH_TARGET, fraction=0.87), settings)) == {"mem_fraction_static": 0.82}
    assert changed(decided(died(Label.OOM_GRAPH_TARGET), settings)) == {"mem_fraction_static": 0.8}


def test_a_list_of_captured_batches_is_cut_and_graphs_that_are_off_are_left_alone() -> None:
    listed = {**BASE, "cuda_graph_bs_decode": [1, 8, 16, 32]}
    off = {**BASE, "cuda_graph_backend_decode": "disabled"}

    assert changed(decided(died(Label.OOM_GRAPH_TARGET), listed))["cuda_graph_bs_decode"] == [1, 8, 16]
    assert changed(decided(died(Label.OOM_GRAPH_TARGET), off)) == {"mem_fraction_static": 0.65}


def test_a_kv_budget_is_raised_above_sglangs_own_minimum_or_by_a_step() -> None:
    told = died(Label.KV_BUDGET, least_fraction=0.7441)

    assert changed(decided(told)) == {"mem_fraction_static": 0.78}
    assert changed(decided(died(Label.KV_BUDGET))) == {"mem_fraction_static": 0.75}


def test_a_pool_that_was_there_and_held_no_token_wants_fewer_requests_first() -> None:
    settings = {"max_running_requests": 512, "mem_fraction_static": 0.85}
    failed = died(Label.KV_BUDGET, fraction=0.85, before_load_gib=94.3, loaded_gib=31.7)

    assert changed(decided(failed, settings)) == {"max_running_requests": 256}
    assert changed(decided(failed, {**settings, "max_running_requests": 24})) == {"max_running_requests": 16}
    assert changed(decided(failed, {**settings, "max_running_requests": 16})) == {"mem_fraction_static": 0.9}


def test_between_too_small_and_too_large_the_middle_is_tried() -> None:
    tries = (try_at(0.7, Label.KV_BUDGET),)
    failed = died(Label.OOM_GRAPH_TARGET, wanted_gib=9.0, free_gib=1.0, before_load_gib=94.0)

    decision = decided(failed, {**BASE, "mem_fraction_static": 0.76, "cuda_graph_max_bs_decode": 16}, tries=tries)
    assert changed(decision) == {"mem_fraction_static": 0.73}
    tries = (try_at(0.76, Label.OOM_GRAPH_TARGET),)
    assert changed(decided(died(Label.KV_BUDGET), {**BASE, "mem_fraction_static": 0.73}, tries=tries)) == {
        "mem_fraction_static": 0.75
    }


def test_fractions_stay_within_their_bounds_and_other_moves_follow_there() -> None:
    def at(fraction: float) -> dict[str, Any]:
        return {"max_running_requests": 64, "mem_fraction_static": fraction, "cuda_graph_max_bs_decode": 16}

    assert changed(decided(died(Label.KV_BUDGET), at(0.94))) == {"mem_fraction_static": 0.97}
    assert changed(decided(died(Label.KV_BUDGET), at(0.97)))["max_running_requests"] == 32
    assert changed(decided(died(Label.OOM_GRAPH_TARGET), at(0.12))) == {"mem_fraction_static": 0.1}
    assert changed(decided(died(Label.OOM_GRAPH_TARGET), at(0.1)))["max_running_requests"] == 32


def test_settings_that_are_refused_make_way_for_the_next_move() -> None:
    now = Situation(BASE, died(Label.KV_BUDGET), LOAD)
    rights = Rights(3, 1, lambda s: s["mem_fraction_static"] == 0.75)

    assert "mem_fraction_static" not in changed(decide(now, rights))


def test_a_step_that_was_not_enough_is_not_made_smaller() -> None:
    once = (try_at(0.75, Label.OOM_GRAPH_TARGET),)
    capped = {**BASE, "cuda_graph_max_bs_decode": 16}
    short = died(Label.OOM_GRAPH_DRAFT, wanted_gib=1.0, free_gib=0.9, before_load_gib=94.0)

    # 0.70 was reached by a step of 0.05.
    assert changed(decided(died(Label.OOM_GRAPH_TARGET), capped, tries=once)) == {"mem_fraction_static": 0.6}
    assert changed(decided(short, capped, tries=once)) == {"mem_fraction_static": 0.65}
    assert changed(decided(died(Label.KV_BUDGET), tries=(try_at(0.65, Label.KV_BUDGET),))) == {
        "mem_fraction_static": 0.8
    }


def test_a_squeeze_takes_less_of_everything_but_never_less_than_the_load_needs() -> None:
    graph_at_085 = (try_at(0.85, Label.OOM_GRAPH_TARGET),)
    decision = decided(died(Label.KV_BUDGET), {**BASE, "mem_fraction_static": 0.84}, tries=graph_at_085)
    assert changed(decision) == {
        "max_running_requests": 128,
        "cuda_graph_max_bs_decode": 16,
        "context_length": 2048,
    }

    kv_at_084 = (try_at(0.84, Label.KV_BUDGET),)
    small = {**BASE, "mem_fraction_static": 0.85, "cuda_graph_max_bs_decode": 16, "context_length": 4096}
    assert changed(decided(died(Label.OOM_GRAPH_TARGET), small, tries=kv_at_084)) == {
        "max_running_requests": 128,
        "context_length": 1024,
    }


def test_a_squeeze_by_the_weights_alone_keeps_their_fraction_and_shrinks_what_is_captured() -> None:
    numbers = {"graph_begin_gib": 9.0, "wanted_gib": 12.0, "free_gib": 5.0, "total_gib": 94.0, "captured_batch": 16}
    tries = (try_at(0.85, Label.OOM_GRAPH_TARGET, **numbers),)
    settings = {**BASE, "mem_fraction_static": 0.84, "cuda_graph_max_bs_decode": 16}

    # The capture wanted 9 - 5 + 12 = 16 GiB for 16; 9 GiB less a margin of 0.5 GiB are there.
    decision = decided(died(Label.KV_BUDGET, least_fraction=0.846), settings, tries=tries)
    assert changed(decision) == {"mem_fraction_static": 0.85, "cuda_graph_max_bs_decode": 8}


def test_only_what_it_may_change_is_changed_and_what_the_sweep_varies_last() -> None:
    graph = died(Label.OOM_GRAPH_TARGET)
    swept = frozenset({"mem_fraction_static"})

    assert changed(decided(graph, swept=swept)) == {"cuda_graph_max_bs_decode": 16}
    capped = {**BASE, "cuda_graph_max_bs_decode": 16}
    assert changed(decided(graph, capped, swept=swept)) == {"mem_fraction_static": 0.65}
    assert changed(decided(graph, may_change=frozenset({"max_running_requests"}))) == {"max_running_requests": 128}
    assert isinstance(decided(graph, may_change=frozenset()), NoMove)


def test_the_kv_caches_own_allocation_is_lowered_a_little_then_its_tokens_are_capped() -> None:
    failed = died(Label.OOM_KV_ALLOC)

    assert changed(decided(failed)) == {"mem_fraction_static": 0.68}
    assert changed(decided(failed, tries=(try_at(0.72, Label.OOM_KV_ALLOC),))) == {"max_total_tokens": 16 * 1024}


def test_memory_that_runs_out_under_load_is_met_by_other_moves_in_turn() -> None:
    failed = died(Label.RUNTIME_OOM, resolved={"chunked_prefill_size": 4096})
    once, twice = (try_at(0.73, Label.RUNTIME_OOM),), (try_at(0.73, Label.RUNTIME_OOM), try_at(0.72, Label.RUNTIME_OOM))

    assert changed(decided(failed)) == {"mem_fraction_static": 0.67}
    assert changed(decided(failed, tries=once)) == {"chunked_prefill_size": 2048}
    assert changed(decided(failed, tries=twice)) == {"max_running_requests": 128}


def test_a_pool_that_runs_out_wants_fewer_requests_then_more_states_where_there_are_any() -> None:
    once = (try_at(0.7, Label.RUNTIME_POOL),)
    settings = {**BASE, "max_running_requests": 128}

    assert changed(decided(died(Label.RUNTIME_POOL))) == {"max_running_requests": 128}
    hybrid = died(Label.RUNTIME_POOL, has_states=True)
    assert changed(decided(hybrid, settings, tries=once)) == {"mamba_full_memory_ratio": 1.8}
    assert changed(decided(died(Label.RUNTIME_POOL), settings, tries=once)) == {"max_running_requests": 32}


@pytest.mark.parametrize(
    ("evidence", "changes"),
    [
        ("ValueError: SWA pool (100 tokens) cannot hold even one request: ...", {"swa_full_tokens_ratio": 1.0}),
        ("RuntimeError: SWA pool cap (9 tokens, 9 GiB) leaves no room for the rest", {"swa_full_tokens_ratio": 0.4}),
        ("RuntimeError: Hybrid (mamba/linear-attention) state cache is too small to serve any requests.",
         {"mamba_full_memory_ratio": 1.8}),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 18.56 GiB.", {"max_mamba_cache_size": 80}),
    ],
)  # fmt: skip
def test_state_pools_are_met_by_their_own_settings_in_the_right_direction(
    evidence: str, changes: dict[str, Any]
) -> None:
    assert changed(decided(died(Label.STATE_POOL, evidence))) == changes


def test_a_cap_below_one_request_is_the_users_and_tries_are_bounded() -> None:
    capped = decided(died(Label.KV_BUDGET), {**BASE, "max_total_tokens": 0})
    used = decided(died(Label.KV_BUDGET), tries_left=0)

    assert isinstance(capped, NoMove)
    assert capped.reason == "max_total_tokens=0 holds not one request of the load"
    assert isinstance(used, NoMove)
    assert used.reason == "all tries of recovery.tries are used"

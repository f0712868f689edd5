"""A server that did not speculate as asked has other numbers than its config."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.points.metrics import summarise
from orchestrator.sglang.speculation_proof import SpeculationAsk
from tests.orchestrator.literal_records import C1, client_of, request

EAGLE = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3}


def reasons(
    settings: dict[str, Any], *, api: str = "generate", version: str = "0.5.23", calls: float | None = None, **more: Any
) -> tuple[str, ...]:
    records = [request(i * 100, [i * 100 + 10, i * 100 + 20], **more) for i in range(4)]
    ask = SpeculationAsk.of(settings, api, version)
    client = client_of(4, verify_calls_delta=calls)
    return summarise(records, level=C1, client=client, speculation=ask).void_reasons


def test_speculation_that_was_asked_for_and_seen_is_valid() -> None:
    assert reasons(EAGLE, verify_ct=1, correct_drafts=1) == ()
    assert reasons(EAGLE, api="chat", calls=40.0) == ()


@pytest.mark.parametrize("counts", [{"verify_ct": None}, {"verify_ct": 0}, {"calls": 0.0}])
def test_speculation_that_was_asked_for_and_never_happened_voids_the_point(counts: dict[str, Any]) -> None:
    assert reasons(EAGLE, **counts) == (
        "asked for EAGLE with 3 steps, but the server made no verify pass: it served without speculation",
    )


def test_speculation_that_nobody_asked_for_voids_the_point() -> None:
    assert reasons({}, verify_ct=2) == ("asked for no speculation, but the server made 8 verify passes",)
    assert reasons({}, api="chat", calls=12.0) == ("asked for no speculation, but the server made 12 verify passes",)
    assert reasons({}) == ()


def test_answers_of_one_token_need_no_verify_pass() -> None:
    records = [request(i * 100, [i * 100 + 10]) for i in range(4)]
    ask = SpeculationAsk.of(EAGLE, "generate", "0.5.23")

    assert summarise(records, level=C1, client=client_of(4), speculation=ask).void_reasons == ()


@pytest.mark.parametrize("version", ["0.5.9", "0.5.12.post1", None])
def test_where_a_release_cannot_tell_it_is_a_warning(version: str | None) -> None:
    records = [request(i * 100, [i * 100 + 10, i * 100 + 20]) for i in range(4)]
    metrics = summarise(records, level=C1, client=client_of(4), speculation=SpeculationAsk.of(EAGLE, "chat", version))

    assert metrics.void_reasons == ()
    assert (
        "nothing shows whether the server speculated (EAGLE with 3 steps was asked): load it by api generate to know"
        in metrics.warnings
    )


def test_a_server_that_ran_fewer_requests_than_the_level_is_warned_of() -> None:
    client = client_of(40, server_running_max=8, server_queued_max=8)
    level = replace(C1, value=2.0)
    records = [request(i * 100, [i * 100 + 10, i * 100 + 20]) for i in range(40)]

    assert not [w for w in summarise(records, level=level, client=client).warnings if "at most" in w]
    level = replace(C1, value=16.0)
    (told,) = [w for w in summarise(records, level=level, client=client).warnings if "at most" in w]
    assert told == "the server ran at most 8 requests at once at C=16, up to 8 waited"


def drafting(depth: int, drafted_here: float | None, *, counted: bool = True, drafted: float = 0.0) -> Any:
    records = [request(i * 100, [i * 100 + 10, i * 100 + 20]) for i in range(4)]
    client = client_of(4, drafted_tokens_delta=drafted_here)
    return summarise(records, level=C1, client=client, speculation=SpeculationAsk.by_template(depth, counted, drafted))


def test_a_config_of_any_server_that_drafted_nothing_in_the_whole_run_is_void() -> None:
    assert drafting(3, 0.0).void_reasons == (
        "asked for drafting at depth 3, but the server made no draft token: it served without speculation",
    )
    assert drafting(0, 0.0).void_reasons == ()
    assert drafting(0, 5.0).void_reasons == ("asked for no speculation, but the server made 5 draft tokens",)


def test_a_draft_from_the_text_that_found_nothing_at_one_point_is_a_warning_there() -> None:
    metrics = drafting(3, 0.0, drafted=40.0)

    assert metrics.void_reasons == ()
    assert metrics.warnings[-1] == (
        "nothing shows whether the server speculated (drafting at depth 3 was asked): nothing was drafted at this point"
    )


def test_without_a_counter_of_drafts_it_cannot_be_known() -> None:
    metrics = drafting(3, None, counted=False)

    assert metrics.void_reasons == ()
    assert metrics.warnings[-1].endswith("(drafting at depth 3 was asked): give engine.counters.drafted to know")

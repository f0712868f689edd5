"""What a point needs of a server that only has an OpenAI API: body, model name, counters by their own names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from actors.load.load_watch import counter_delta, counter_patterns, read_counters
from actors.wire.client import StreamClient, request_body
from actors.wire.flight import Request
from actors.wire.served_api import listed_models
from actors.workloads.workload import Prompt
from orchestrator.points.metrics import summarise
from orchestrator.scenarios.extra_body import OWNED, body_text, owned_keys
from tests.actors.load_specs import ask, run, spec
from tests.fakes.scripted_endpoint import Script, ScriptedEndpoint, chat
from tests.orchestrator.literal_records import C1, CLIENT, request

LLAMACPP = """\
# HELP llamacpp:n_decode_total Total number of llama_decode() calls
llamacpp:n_decode_total 23
llamacpp:spec_decode_num_draft_tokens_total 4
llamacpp:spec_decode_num_accepted_tokens_total 1
llamacpp:spec_decode_num_drafts_total 2
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 1
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 7
"""
NAMED = (
    ("drafted", "llamacpp:spec_decode_num_draft_tokens_total"),
    ("accepted", "llamacpp:spec_decode_num_accepted_tokens_total"),
    ("verified", "llamacpp:spec_decode_num_drafts_total"),
)


def test_counters_are_read_by_the_names_that_the_scenario_gives_them() -> None:
    assert read_counters(LLAMACPP, counter_patterns(NAMED)) == {"drafted": 4.0, "accepted": 1.0, "verified": 2.0}


def test_samples_of_all_labels_are_added() -> None:
    text = 'x:a_total{engine="0"} 3\nx:a_total{engine="1"} 4.5\nx:a_total_created{engine="0"} 9\n'

    assert read_counters(text, counter_patterns((("accepted", "x:a_total"),))) == {"accepted": 7.5}


def test_without_names_the_counters_are_those_of_sglang() -> None:
    text = 'sglang:generation_tokens_total{model_name="m"} 12.0\nsglang_num_requests_total 3\n' + LLAMACPP

    assert read_counters(text, counter_patterns(())) == {"generated": 12.0, "requests": 3.0}
    assert counter_delta("drafted", {}, {}) is None


def test_a_name_is_no_pattern() -> None:
    assert read_counters("xya 1\n", counter_patterns((("accepted", "x.a"),))) == {}


@pytest.mark.parametrize(
    ("deltas", "rate", "length"),
    [
        ({"drafted_tokens_delta": 8.0, "accepted_tokens_delta": 6.0, "verify_calls_delta": 3.0}, 0.75, 3.0),
        ({"drafted_tokens_delta": 8.0, "accepted_tokens_delta": 6.0}, 0.75, None),
        ({"drafted_tokens_delta": 0.0, "accepted_tokens_delta": 0.0, "verify_calls_delta": 0.0}, None, None),
        ({"accepted_tokens_delta": 6.0}, None, None),
        ({"verify_calls_delta": 2.0, "generation_tokens_delta": 9.0, "requests_delta": 1.0}, None, 4.0),
    ],
)
def test_acceptance_from_the_counters_of_a_server(
    deltas: dict[str, Any], rate: float | None, length: float | None
) -> None:
    found = summarise([request(0, [10, 20, 30])], level=C1, client=replace(CLIENT, **deltas))

    assert (found.accept_rate, found.accept_length) == (rate, length)


def test_per_request_counters_come_before_those_of_the_server() -> None:
    record = request(0, [10, 20], verify_ct=2, correct_drafts=1, proposed_drafts=4)
    client = replace(CLIENT, drafted_tokens_delta=8.0, accepted_tokens_delta=8.0, verify_calls_delta=1.0)
    found = summarise([record], level=C1, client=client)

    assert (found.accept_rate, found.accept_length) == (0.25, 1.5)


def test_the_body_of_a_workload_is_added_to_every_request() -> None:
    async def go() -> list[dict[str, Any]]:
        server = ScriptedEndpoint(lambda n, body: Script([(0.0, chat({"content": "x"}, tokens=3, finish="stop"))]))
        extra = body_text({"top_k": 1, "cache_prompt": False})
        async with server, StreamClient(server.url, spec(api="chat", extra_body=extra)) as client:
            await client.find_model()
            await ask(client)
            return server.bodies

    (body,) = run(go())
    assert (body["cache_prompt"], body["top_k"], body["model"]) == (False, 1, "m")


def test_the_text_of_a_body_does_not_depend_on_the_order_of_its_keys() -> None:
    assert body_text({"b": 1, "a": {"d": 2, "c": 3}}) == body_text({"a": {"c": 3, "d": 2}, "b": 1})
    assert body_text({}) == ""


@pytest.mark.parametrize("api", ["generate", "completions", "chat"])
def test_no_key_that_is_sent_can_be_overridden(api: Any) -> None:
    body = request_body(spec(api=api), Request(0, False, 0, Prompt("Hello", None, "h"), 3), "m")

    assert owned_keys(body) == sorted(body)
    assert {"n", "echo"} <= OWNED


def test_a_conversation_is_sent_message_by_message() -> None:
    @dataclass(frozen=True)
    class Turn:
        text: str | None = None
        input_ids: tuple[int, ...] | None = None
        digest: str = "h"
        messages: tuple[tuple[str, str], ...] | None = (("user", "Hi"), ("assistant", "Hello"), ("user", "Bye"))

    asked: Any = Turn()
    body = request_body(spec(api="chat"), Request(0, False, 0, asked, 3), "m")

    assert body["messages"] == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "Bye"},
    ]


def test_half_a_character_in_a_prompt_is_sent_as_it_is() -> None:
    async def go() -> list[dict[str, Any]]:
        server = ScriptedEndpoint(lambda n, body: Script([(0.0, chat({"content": "x"}, tokens=3, finish="stop"))]))
        async with server, StreamClient(server.url, spec(api="chat")) as client:
            await client.send(client.flight(Request(0, False, 0, Prompt("\ud83d!", None, "h"), 3)))
            return server.bodies

    (body,) = run(go())
    assert body["messages"] == [{"role": "user", "content": "\ud83d!"}]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('{"data": [{"id": "a"}, {"id": "b"}]}', ["a", "b"]),
        ('{"data": [{"name": "a"}, 3]}', []),
        ('{"data": {}}', []),
        ("[]", []),
        ("<html>", []),
        (None, []),
    ],
)
def test_models_that_a_server_lists(text: str | None, names: list[str]) -> None:
    assert listed_models(text) == names

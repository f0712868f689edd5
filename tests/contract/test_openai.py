"""`/v1/chat/completions` and `/v1/completions`: frames of streams, whole answers, usage."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.chunks import in_chunks
from tests.contract.servers import Server

BOTH = pytest.mark.parametrize("chat", [pytest.param(True, id="chat"), pytest.param(False, id="completions")])
NULL_USAGE = {"prompt_tokens_details": None, "completion_tokens_details": None}
KINDS = {True: ("chat.completion", "chat.completion.chunk"), False: ("text_completion", "text_completion")}


def usage_of(prompt: int, completion: int, **details: Any) -> dict[str, Any]:
    counts = {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}
    return {**counts, "reasoning_tokens": 0, **details}


def content(choice: dict[str, Any]) -> str:
    """Text of a chunk's choice on either endpoint."""
    return choice["text"] if "text" in choice else choice["delta"].get("content") or ""


@BOTH
def test_a_whole_answer(server: Server, chat: bool) -> None:
    body = server.complete(chat, model="m").json
    choice = body["choices"][0]
    assert list(body) == ["id", "object", "created", "model", "choices", "usage", "metadata"]
    assert (body["object"], body["model"]) == (KINDS[chat][0], "m")
    assert isinstance(body["created"], int)
    assert (choice["index"], choice["logprobs"], choice["finish_reason"]) == (0, None, "length")
    assert choice["matched_stop"] is None
    if chat:
        assert set(choice["message"]) == {"role", "content", "reasoning_content"}
        assert (choice["message"]["role"], choice["message"]["reasoning_content"]) == ("assistant", None)
    else:
        assert isinstance(choice["text"], str)
    assert body["usage"] == usage_of(body["usage"]["prompt_tokens"], 6, **NULL_USAGE)
    assert body["metadata"] == {
        "weight_version": "default",
        "weight_versions": [{"version": "default", "start": 0, "end": 6}],
    }


@BOTH
@pytest.mark.parametrize("include", [False, True])
def test_frames_of_a_stream(server: Server, chat: bool, include: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if include else {}
    *events, done = server.complete(chat, model="m", stream=True, **options).events
    assert done == "[DONE]"
    tail = events.pop() if include else None
    head = {key: events[0][key] for key in ("id", "object", "created", "model")}
    assert (head["object"], head["model"]) == (KINDS[chat][1], "m")
    for event in events:
        assert {key: event[key] for key in head} == head
        assert set(event["choices"][0]) >= {"index", "logprobs", "finish_reason", "matched_stop"}
        # Completions have a usage of null in every chunk, chat has none.
        assert ("usage" in event) == (not chat)
        assert event.get("usage") is None
    reasons = [event["choices"][0]["finish_reason"] for event in events]
    assert reasons == [None] * (len(events) - 1) + ["length"]
    if chat:
        role = {"reasoning_content": None, "role": "assistant", "content": ""}
        assert events[0]["choices"][0]["delta"] == role
        assert events[-1]["choices"][0]["delta"] == {"reasoning_content": None}
    if tail is not None:
        assert tail["choices"] == []
        details = NULL_USAGE if chat else {}
        assert tail["usage"] == usage_of(tail["usage"]["prompt_tokens"], 6, **details)


@BOTH
def test_the_chunks_of_a_stream_add_up_to_the_whole_answer(server: Server, chat: bool) -> None:
    whole = server.complete(chat).json["choices"][0]
    chunks = [event["choices"][0] for event in server.complete(chat, stream=True).events[:-1]]
    assert "".join(map(content, chunks)) == (whole["message"]["content"] if chat else whole["text"])


@BOTH
def test_continuous_usage_counts_up_in_every_chunk_of_text(server: Server, chat: bool) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    answer = in_chunks(server, lambda: server.complete(chat, stream=True, max_tokens=20, stream_options=options))
    events = answer.events[:-1]
    tail = events.pop()
    told = [event["usage"] for event in events if event.get("usage")]
    counts = [usage["completion_tokens"] for usage in told]
    prompt = tail["usage"]["prompt_tokens"]
    assert told == [usage_of(prompt, count, **NULL_USAGE) for count in counts]
    assert counts == sorted(set(counts))
    assert (counts[0], counts[-1], tail["usage"]["completion_tokens"]) == (1, 20, 20)
    # Chat: neither the role nor the end has a usage.
    assert [event.get("usage") is None for event in events[:: len(events) - 1]] == [chat, chat]


@BOTH
def test_usage_options_do_not_matter_without_a_stream(server: Server, chat: bool) -> None:
    assert server.complete(chat, stream_options={"include_usage": True}).json["usage"]["completion_tokens"] == 6


@BOTH
def test_n_answers_count_their_prompt_once(server: Server, chat: bool) -> None:
    one, two = server.complete(chat).json, server.complete(chat, n=2).json
    assert [choice["index"] for choice in two["choices"]] == [0, 1]
    assert two["usage"] == usage_of(one["usage"]["prompt_tokens"], 12, **NULL_USAGE)


@BOTH
def test_n_answers_are_streamed_side_by_side(server: Server, chat: bool) -> None:
    events = server.complete(chat, n=2, stream=True, stream_options={"include_usage": True}).events[:-1]
    tail = events.pop()
    for index in (0, 1):
        own = [event["choices"][0] for event in events if event["choices"][0]["index"] == index]
        assert [choice["finish_reason"] for choice in own] == [None] * (len(own) - 1) + ["length"]
    assert tail["usage"]["completion_tokens"] == 12


def test_batches_of_prompts_and_token_ids(server: Server) -> None:
    ids = server.complete(False, prompt=[[1, 2, 3], [4]]).json
    assert [choice["index"] for choice in ids["choices"]] == [0, 1]
    assert ids["usage"] == usage_of(4, 12, **NULL_USAGE)
    assert server.complete(False, prompt=[1, 2, 3]).json["usage"]["prompt_tokens"] == 3
    texts = server.complete(False, prompt=["hello", "the quick brown fox"], stream=True).events[:-1]
    assert {event["choices"][0]["index"] for event in texts} == {0, 1}


def test_echo_repeats_the_prompt(server: Server) -> None:
    plain = server.complete(False).json["choices"][0]["text"]
    assert server.complete(False, echo=True).json["choices"][0]["text"] == "hello world" + plain


@BOTH
def test_a_stop_is_told(server: Server, chat: bool) -> None:
    whole = server.complete(chat, max_tokens=30).json["choices"][0]
    text = whole["message"]["content"] if chat else whole["text"]
    stop = text[:1] if chat else text[3:6]
    choice = server.complete(chat, max_tokens=30, ignore_eos=False, stop=[stop]).json["choices"][0]
    assert (choice["finish_reason"], choice["matched_stop"]) == ("stop", stop)
    assert (choice["message"]["content"] if chat else choice["text"]) == text[: text.index(stop)]


@BOTH
def test_rid_is_the_id_and_the_model_is_what_was_asked_for(server: Server, chat: bool) -> None:
    body = server.complete(chat, rid="r-77", nosuch=1).json
    assert (body["id"], body["model"]) == ("r-77", "default")


def test_chat_takes_both_names_of_the_limit_and_a_limit_of_none(server: Server) -> None:
    assert server.complete(True, max_tokens=None, max_completion_tokens=3).json["usage"]["completion_tokens"] == 3
    nothing = server.complete(True, max_tokens=0).json
    assert nothing["usage"]["completion_tokens"] == 0
    assert nothing["choices"][0]["message"]["content"] == ""


def test_completions_without_a_limit_have_16_tokens(server: Server) -> None:
    body = {"prompt": "hello", "ignore_eos": True}
    assert server.call("POST", "/v1/completions", body).json["usage"]["completion_tokens"] == 16

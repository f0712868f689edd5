"""The text of an answer, on demand, from every kind of stream."""

from __future__ import annotations

import pytest

from actors.wire.answer import Answer
from tests.fakes.scripted_endpoint import DONE, chat, frame, native, trailing_usage


def text_of(*events: bytes, native: bool, keep: bool = True) -> str:
    answer = Answer(native=native, keep_text=keep)
    for i, event in enumerate(events, 1):
        answer.take([event[6:-2]], i)
    return answer.text()


def words(count: int, *, ids: bool, cumulative: bool) -> list[bytes]:
    """A `/generate` stream of `count` tokens, two per frame."""
    frames = []
    for end in range(2, count + 2, 2):
        start = 0 if cumulative else end - 2
        meta = {"completion_tokens": end, "finish_reason": None if end < count else {"type": "stop"}}
        value = {"text": "ab" * ((end - start) // 2), "output_ids": list(range(start, end)), "meta_info": meta}
        frames.append(frame(value if ids else {k: v for k, v in value.items() if k != "output_ids"}))
    return [*frames, DONE]


@pytest.mark.parametrize("count", [2, 4, 6, 40, 8_000])
@pytest.mark.parametrize("cumulative", [True, False])
def test_generate_streams_give_the_same_text_whole_or_in_parts(count: int, cumulative: bool) -> None:
    count = count if not cumulative else min(count, 400)
    assert text_of(*words(count, ids=True, cumulative=cumulative), native=True) == "ab" * (count // 2)


def test_without_token_ids_the_text_tells_whether_it_is_whole() -> None:
    assert text_of(*words(8, ids=False, cumulative=True), native=True) == "abababab"
    assert text_of(native("Hel", 1), native("Hello", 2), native("Hello!", 3, {"type": "stop"}), native=True) == "Hello!"
    parts = [frame({"text": t, "meta_info": {"completion_tokens": i}}) for i, t in enumerate(["Hel", "lo", "!"], 1)]
    assert text_of(*parts, native=True) == "Hello!"


def test_the_text_of_a_chat_is_its_content() -> None:
    call: dict[str, object] = {"tool_calls": [{"function": {"name": "f"}}]}
    deltas: list[dict[str, object]] = [
        {"role": "assistant", "content": ""}, {"reasoning_content": "hm"}, {"content": None}, {"content": "Hel"}, call,
        {"content": "lo"},
    ]  # fmt: skip
    events = [chat(delta, tokens=i) for i, delta in enumerate(deltas)]
    events += [chat({}, finish="stop"), trailing_usage(6), DONE]
    assert text_of(*events, native=False) == "Hello"


def test_of_several_choices_the_first_one_counts() -> None:
    frames = [frame({"choices": [{"index": i % 2, "text": "ab"[i % 2], "finish_reason": None}]}) for i in range(6)]
    assert text_of(*frames, native=False) == "aaa"


def test_halves_of_a_character_are_joined() -> None:
    halves = [b'data: {"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}\n\n',
              b'data: {"choices":[{"index":0,"delta":{"content":"\\ude00"}}]}\n\n']  # fmt: skip
    assert text_of(*halves, native=False) == "😀"
    assert text_of(halves[0], native=False) == "\ufffd"


def test_text_that_was_not_to_be_kept_is_empty_and_so_is_that_of_no_answer() -> None:
    assert text_of(*words(8, ids=True, cumulative=True), native=True, keep=False) == ""
    assert text_of(native=True) == ""
    assert text_of(DONE, native=False) == ""

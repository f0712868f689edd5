"""What streams say, on literal frames and on streams that real SGLang servers sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.wire.answer import Answer, quick_count
from actors.wire.sse import EventSplitter
from tests.fakes.scripted_endpoint import chat, frame, native, trailing_usage

CAPTURES = Path(__file__).parents[2] / "data" / "captures"
LENGTH = {"type": "length", "length": 6}


def body_of(name: str) -> bytes:
    """The body of a captured answer, without its headers."""
    return (CAPTURES / name).read_bytes().partition(b"\r\n\r\n")[2]


def read(*reads: bytes, native: bool) -> Answer:
    """Feed network reads, the i-th at time i + 1."""
    answer, events = Answer(native=native), EventSplitter()
    for i, data in enumerate(reads, 1):
        answer.take(events.feed(data), i)
    answer.close(events.finish(), len(reads) + 1)
    return answer


def facts(answer: Answer) -> tuple[list[int], int | None, int | None, str | None, bool]:
    return (
        answer.chunk_tokens,
        answer.output_tokens,
        answer.prompt_tokens,
        answer.finish_reason,
        answer.complete and answer.error is None,
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("0.5.23-base/generate_stream.txt", ([1, 1, 1, 1, 1, 1], 6, 9, "length", True)),
        ("0.5.23-spec-ngram/generate_stream.txt", ([1, 1, 1, 2, 1], 6, 9, "length", True)),
        ("0.5.23-spec-eagle2/generate_stream.txt", ([1, 1, 1, 1, 1, 1], 6, 9, "length", True)),
        ("0.5.6.post2-base/generate_stream.txt", ([1, 1, 1, 1, 1, 1], 6, 9, "length", True)),
        ("0.5.23-base/chat_stream_usage.txt", ([0, 0, 0, 0], 6, 13, "length", True)),
        ("0.5.23-base/chat_stream_nousage.txt", ([0, 0], None, None, "length", True)),
        ("0.5.23-spec-ngram/chat_stream_usage.txt", ([0, 0, 0], 6, 13, "length", True)),
        ("0.5.6.post2-base/chat_stream_usage.txt", ([0, 0, 0, 0], 6, 13, "length", True)),
        ("0.5.23-base/completions_stream_usage.txt", ([0, 0], 4, 2, "length", True)),
    ],
)
def test_captured_streams_are_read_as_the_server_counted(name: str, expected: tuple[object, ...]) -> None:
    assert facts(read(body_of(name), native="generate" in name)) == expected


def test_a_captured_stream_cut_at_any_byte_reads_the_same() -> None:
    body = body_of("0.5.23-spec-ngram/generate_stream.txt")
    whole = facts(read(body, native=True))
    for cut in range(1, len(body)):
        assert facts(read(body[:cut], body[cut:], native=True)) == whole, cut


def test_a_captured_stream_that_ends_at_any_byte_never_invents_tokens() -> None:
    body = body_of("0.5.23-spec-ngram/generate_stream.txt")
    ends = [i + 2 for i in range(len(body)) if body[i : i + 2] == b"\n\n"]
    for end in range(len(body)):
        answer = read(body[:end], native=True)
        frames = sum(e - 2 <= end for e in ends)  # a frame is whole without its blank line
        assert answer.chunk_tokens == [1, 1, 1, 2, 1][:frames], end


def test_speculation_counters_of_both_name_generations() -> None:
    new = read(body_of("0.5.23-spec-ngram/generate_stream.txt"), native=True)
    assert (new.verify_ct, new.correct_drafts, new.proposed_drafts) == (4, 3, 12)
    assert (new.cached_tokens, new.retractions) == (4, 0)
    old = read(
        native("a", 6, LENGTH, spec_verify_ct=4, spec_accept_token_num=3, spec_draft_token_num=12, total_retractions=2),
        native=True,
    )
    assert (old.verify_ct, old.correct_drafts, old.proposed_drafts, old.retractions) == (4, 3, 12, 2)


def test_no_speculation_means_no_counters() -> None:
    answer = read(body_of("0.5.23-base/generate_stream.txt"), native=True)
    assert (answer.verify_ct, answer.correct_drafts, answer.proposed_drafts) == (None, None, None)


def test_an_error_object_inside_a_stream_is_an_error() -> None:
    answer = read(body_of("0.5.6.post2-base/err_too_long_chat_stream.txt"), native=False)
    assert answer.error == "The input (18011 tokens) is longer than the model's context length (4096 tokens)."
    flat = read(frame({"object": "error", "message": "The request queue is full.", "code": 503}), native=False)
    assert flat.error == "The request queue is full."


def test_an_abort_is_an_error() -> None:
    abort = {"type": "abort", "message": "out of memory", "status_code": 500}
    answer = read(native("a", 1), native("a", 1, abort), native=True)
    assert answer.error == "aborted by the server: out of memory"


@pytest.mark.parametrize(
    "told",
    [
        {"error": "boom"},
        {"type": "error", "message": "boom"},
        {"object": "error", "message": "boom"},
        {"detail": "boom"},
    ],
)
def test_an_error_is_one_however_a_server_writes_it(told: dict[str, object]) -> None:
    assert read(chat({"content": "a"}, tokens=1), frame(told), native=False).error == "boom"


def test_an_answer_that_ends_with_an_error_has_failed() -> None:
    answer = read(chat({"content": "a"}, tokens=1), chat({}, tokens=1, finish="error"), native=False)
    assert answer.error == "ended with an error by the server: no message"


@pytest.mark.parametrize("nothing", [None, "", {}])
def test_an_empty_error_is_none(nothing: object) -> None:
    said = {"choices": [{"index": 0, "delta": {"content": "a"}}], "error": nothing}
    assert read(frame(said), native=False).error is None


def test_role_only_and_empty_chunks_are_no_tokens() -> None:
    for nothing in ({"role": "assistant", "content": None}, {"role": "assistant", "content": ""}):
        answer = read(chat(nothing), chat({"content": "Hi"}), chat({}, finish="stop"), native=False)
        assert answer.chunk_ns == [2]


@pytest.mark.parametrize("name", ["content", "reasoning_content", "reasoning", "thinking", "refusal", "function_call"])
def test_the_first_token_may_be_reasoning(name: str) -> None:
    answer = read(chat({"role": "assistant"}), chat({name: "Hm"}), chat({name: "."}), native=False)
    assert answer.chunk_ns == [2, 3]


def test_a_tool_call_is_a_token() -> None:
    call = {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]}
    assert read(chat({"role": "assistant"}), chat(call), native=False).chunk_ns == [2]


@pytest.mark.parametrize(
    "shown", [{"token_ids": [5]}, {"logprobs": {"tokens": ["a"]}}, {"logprobs": {"content": [{}]}}]
)
def test_a_token_without_a_text_is_a_token(shown: dict[str, object]) -> None:
    nothing, token = ({"choices": [{"index": 0, "text": "", **more}]} for more in ({"logprobs": None}, shown))
    assert read(frame(nothing), frame(token), frame(token), trailing_usage(2), native=False).chunk_ns == [2, 3]


@pytest.mark.parametrize("tokens", [None, 1])
def test_texts_after_a_count_that_stands_still_share_what_only_the_total_tells(tokens: int | None) -> None:
    texts = [chat({"content": "b"}, tokens=tokens) for _ in range(3)]
    answer = read(chat({"content": "a"}, tokens=1), *texts, trailing_usage(8), native=False)
    assert (answer.chunk_ns, answer.chunk_tokens, answer.output_tokens) == ([1, 2, 3, 4], [1, 3, 2, 2], 8)


def test_growing_usage_counts_before_any_text_is_shown() -> None:
    """A parser that holds back text must not move its time into TTFT."""
    reads = [chat({}, tokens=0), *(chat({}, tokens=n) for n in (1, 2, 3)), chat({"content": "abcd"}, tokens=4)]
    answer = read(*reads, chat({}, tokens=4, finish="stop"), trailing_usage(4), native=False)
    assert (answer.chunk_ns, answer.chunk_tokens) == ([2, 3, 4, 5], [1, 1, 1, 1])


def test_the_trailing_usage_frame_does_not_extend_the_decode_window() -> None:
    counted = read(chat({"content": "a"}, tokens=1), chat({"content": "b"}, tokens=2), trailing_usage(3), native=False)
    assert (counted.chunk_ns, counted.chunk_tokens, counted.output_tokens) == ([1, 2], [1, 2], 3)
    uncounted = read(chat({"content": "a"}), chat({"content": "b"}), trailing_usage(100), native=False)
    assert (uncounted.chunk_ns, uncounted.chunk_tokens, uncounted.output_tokens) == ([1, 2], [0, 0], 100)


def test_usage_in_the_finishing_chunk_is_a_total() -> None:
    answer = read(chat({"content": "a"}), chat({"content": "b"}), chat({}, tokens=8, finish="stop"), native=False)
    assert (answer.chunk_ns, answer.chunk_tokens, answer.output_tokens) == ([1, 2], [0, 0], 8)


def test_spaces_are_counted_by_the_server_not_by_their_text() -> None:
    spaces = [chat({"content": " "}, tokens=n) for n in range(1, 101)]
    answer = read(*spaces, trailing_usage(100), native=False)
    assert (len(answer.chunk_ns), answer.output_tokens) == (100, 100)


def test_cumulative_and_incremental_streams_count_the_same() -> None:
    cumulative = [native("a" * n, n) for n in (1, 4, 6)]
    incremental = [native("a", 1), native("aaa", 4), native("aa", 6)]
    for reads in (cumulative, incremental):
        answer = read(*reads, native("", 6, LENGTH), native=True)
        assert (answer.chunk_ns, answer.chunk_tokens) == ([1, 2, 3], [1, 3, 2])


def test_a_text_that_looks_like_a_count_is_not_one() -> None:
    trap = '"finish_reason":null,"completion_tokens":77,"meta_info":{"completion_tokens":99}'
    answer = read(native(trap, 1), native(trap * 2, 2), native(trap * 3, 3, LENGTH), native=True)
    assert (answer.chunk_tokens, answer.output_tokens) == ([1, 1, 1], 3)


def test_counts_of_unfinished_frames_are_found_without_decoding_them() -> None:
    assert quick_count(native("a", 12), True) == 12
    assert quick_count(native("a", 12, LENGTH), True) == 0
    assert quick_count(b'{"error":{"message":"no"}}', True) == 0
    assert quick_count(chat({"content": "a"}, tokens=3), False) == 3
    assert quick_count(chat({"content": "a"}), False) == 0
    assert quick_count(b'{"choices": [{"finish_reason": null}], "usage": {"completion_tokens": 5}}', False) == 5


def test_a_stream_whose_frames_have_the_count_elsewhere_too_is_decoded() -> None:
    frames = [native(text, n, other={"completion_tokens": 90 + n}) for text, n in (("a", 1), ("ab", 2), ("abc", 3))]
    assert facts(read(*frames, native=True))[:2] == ([1, 1, 1], 3)


def test_a_text_that_looks_like_a_count_is_none() -> None:
    said = 'x","finish_reason":null,"usage":{"completion_tokens":99}'
    frames = [chat({"content": said}, tokens=n) for n in (1, 2, 3)]
    assert facts(read(*frames, native=False))[:2] == ([1, 1, 1], 3)


def test_half_a_surrogate_pair_is_not_a_fault() -> None:
    answer = read(b'data: {"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}\n\n', native=False)
    assert (answer.error, answer.chunk_ns) == (None, [1])


def test_an_event_that_is_not_json_is_a_fault() -> None:
    assert read(b"data: oops\n\n", native=False).error == "an event is not a JSON object: oops"


def test_a_cut_stream_still_tells_about_its_request() -> None:
    answer = read(native("a", 1), native("aa", 2, num_retractions=3), native=True)
    assert (answer.complete, answer.retractions, answer.output_tokens) == (False, 3, 2)


def test_the_wait_in_the_queue_is_told_in_milliseconds() -> None:
    captured = read(body_of("0.5.23-base/generate_stream.txt"), native=True)
    assert captured.queue_ms == pytest.approx(0.5648940000355651)
    cut = read(native("a", 1, queue_time=0.25), native("aa", 2, queue_time=0.25), native=True)
    assert cut.queue_ms == 250.0
    for told in ({}, {"queue_time": None}, {"queue_time": -1.0}, {"queue_time": "0.2"}):
        assert read(native("a", 1, LENGTH, **told), native=True).queue_ms is None


@pytest.mark.parametrize("odd", [5, "x", {"a": 1}, [5, None], True])
def test_frames_of_another_shape_are_no_tokens_and_no_crash(odd: object) -> None:
    frames = [frame({"choices": odd, "usage": odd}), chat({"content": "a"}), chat({}, finish="stop")]
    answer = read(*frames, native=False)
    assert (answer.chunk_ns, answer.error, answer.finish_reason) == ([2], None, "stop")
    told = read(frame({"text": odd, "meta_info": odd, "output_ids": odd}), native("a", 1, LENGTH), native=True)
    assert (told.output_tokens, told.finish_reason) == (1, "length")

"""The answers of the benchmarks' streaming server say what our client and SGLang's real answers say."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from actors.wire.answer import Answer
from actors.wire.sse import EventSplitter
from benchmarks.stream_frames import HEAD, Asked, Frames, frames_of
from benchmarks.stream_script import Script, asked_of

CAPTURES = Path(__file__).resolve().parent.parent.parent / "data/captures/0.5.23-base"


def asked(api: str, *, tokens: int = 7, usage: str = "every", chunk_tokens: int = 3, cumulative: bool = True) -> Asked:
    return Asked(api, "m", tokens, 5, usage, chunk_tokens, cumulative)


def body(frames: Frames) -> bytes:
    """All that is written after the head, out of its HTTP chunks."""
    data, text = frames.role + b"".join(frames.steps) + frames.tail, b""
    while data:
        size, _, rest = data.partition(b"\r\n")
        text, data = text + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return text


def read(api: str, text: bytes) -> Answer:
    answer, events = Answer(native=api == "generate"), EventSplitter()
    answer.take(events.feed(text), 1)
    answer.close(events.finish(), 1)
    return answer


@pytest.mark.parametrize("cumulative", [True, False])
@pytest.mark.parametrize("api", ["completions", "chat", "generate"])
def test_seven_tokens_in_chunks_of_three_are_counted_as_three_three_and_one(api: str, cumulative: bool) -> None:
    answer = read(api, body(frames_of(asked(api, cumulative=cumulative))))

    assert answer.chunk_tokens == [3, 3, 1]
    assert (answer.output_tokens, answer.prompt_tokens, answer.finish_reason) == (7, 5, "length")
    assert answer.done
    assert answer.error is None


def test_the_account_of_tokens_goes_up_to_the_last_frame() -> None:
    assert frames_of(asked("completions")).tokens == (3, 6, 7)


def test_a_speculating_server_tells_that_three_passes_made_seven_tokens() -> None:
    answer = read("generate", body(frames_of(asked("generate"))))

    assert (answer.verify_ct, answer.correct_drafts, answer.proposed_drafts) == (3, 4, 6)


@pytest.mark.parametrize(
    ("api", "capture"), [("chat", "chat_stream_usage.txt"), ("completions", "completions_stream_usage.txt")]
)
def test_frames_have_the_keys_of_real_answers_in_their_order(api: str, capture: str) -> None:
    real = (CAPTURES / capture).read_bytes().replace(b"\r\n", b"\n").partition(b"\n\n")[2]

    assert _shapes(body(frames_of(asked(api, usage="end", chunk_tokens=1)))) == _shapes(real)


def _shapes(text: bytes) -> set[tuple[str, ...]]:
    """Keys of each kind of event, those of its choice and delta behind them."""
    shapes = set()
    for line in text.split(b"\n"):
        if line.startswith(b"data: {"):
            event = orjson.loads(line[6:])
            choice = (event["choices"] or [{}])[0]
            shapes.add((*event, *choice, *choice.get("delta", {})))
    return shapes


def test_the_head_promises_chunks_of_events() -> None:
    assert b"text/event-stream" in HEAD
    assert HEAD.endswith(b"chunked\r\n\r\n")


def test_the_length_of_an_answer_is_read_where_each_api_has_it() -> None:
    script = Script(chunk_tokens=2)
    chat = {"messages": [{"role": "user", "content": "a b"}], "max_completion_tokens": 9, "stream": True}

    assert asked_of("generate", {"text": "a b c", "sampling_params": {"max_new_tokens": 9}}, script)[1].tokens == 9
    assert asked_of("chat", chat, script) == ("a b", Asked("chat", "bench-model", 9, 2, "none", 2, True))
    assert asked_of("completions", {"prompt": "a", "max_tokens": 4}, script)[1].tokens == 4

"""However the network cuts a stream, and however its lines end, it says the same."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from actors.wire.answer import Answer, quick_count
from actors.wire.sse import EventSplitter
from tests.fakes.scripted_endpoint import DONE, chat, frame, native, trailing_usage

TEXTS = st.text(
    st.sampled_from('a\u2705\u6f22\U0001f642"\\{}:,\n') | st.characters(exclude_categories=["Cs"]), max_size=6
)
NOISE = st.sampled_from([b"", b": ping\n\n", b"event: x\nid: 7\nretry: 5\n\n", b"\n\n", b"id\n\n"])


@st.composite
def streams(draw: st.DrawFn) -> tuple[bool, bytes]:
    """(whether of `/generate`, a stream of some tokens with whatever may stand between)."""
    in_lines = draw(st.booleans())
    is_native = draw(st.booleans())
    texts = draw(st.lists(TEXTS, min_size=1, max_size=5))
    parts, count = [], 0
    for i, text in enumerate(texts):
        count += draw(st.integers(0, 3))
        last = i + 1 == len(texts)
        if is_native:
            parts.append(native(text, count, {"type": "stop"} if last else None, queue_time=0.25))
        else:
            delta = {draw(st.sampled_from(["content", "reasoning_content", "reasoning"])): text}
            parts.append(chat(delta, tokens=draw(st.sampled_from([None, count])), finish="stop" if last else None))
        parts.append(draw(NOISE))
    if not is_native:
        parts.append(draw(st.sampled_from([b"", trailing_usage(count)])))
    parts.append(draw(st.sampled_from([b"", DONE, DONE[:-1], DONE[:-2], frame({"error": {"message": "no"}})])))
    if in_lines:  # JSON over two lines of data
        parts = [part.replace(b"data: {", b"data: {\ndata: ", 1) for part in parts]
    return is_native, b"".join(parts)


def read(reads: list[bytes], *, native: bool) -> tuple[Any, ...]:
    """All that an answer says but its times."""
    answer, events = Answer(native=native, keep_text=True), EventSplitter()
    for i, data in enumerate(reads):
        answer.take(events.feed(data), i)
    answer.close(events.finish(), len(reads))
    said = [getattr(answer, name) for name in Answer.__slots__ if not name.startswith("_") and name != "chunk_ns"]
    assert answer.chunk_ns == sorted(answer.chunk_ns)
    return (*said, len(answer.chunk_ns), answer.text())


@settings(max_examples=80, deadline=None)
@given(streams(), st.data())
def test_every_cut_and_every_line_end_says_the_same(stream: tuple[bool, bytes], data: st.DataObject) -> None:
    is_native, whole = stream
    expected = read([whole], native=is_native)
    events = whole.split(b"\n\n")
    ends = data.draw(st.lists(st.sampled_from([b"\n", b"\r\n", b"\r"]), min_size=len(events), max_size=len(events)))
    rewritten = [event.replace(b"\n", end) + end * 2 for event, end in zip(events, ends, strict=True)]
    other = data.draw(st.sampled_from([b"", b"\xef\xbb\xbf"])) + b"".join(
        [*rewritten[:-1], rewritten[-1].removesuffix(ends[-1] * 2)]
    )
    cuts = data.draw(st.lists(st.integers(0, len(other)), max_size=8))
    bounds = [0, *sorted(cuts), len(other)]
    assert read([other[a:b] for a, b in pairwise(bounds)], native=is_native) == expected
    assert read([other[i : i + 1] for i in range(len(other))], native=is_native) == expected


@settings(max_examples=60, deadline=None)
@given(TEXTS, st.integers(1, 10**9), st.booleans(), st.booleans())
def test_a_count_that_is_read_without_decoding_is_that_of_the_frame(
    text: str, count: int, is_native: bool, finished: bool
) -> None:
    trap = text + '"completion_tokens":77,"usage":{"finish_reason":null'
    finish: Any = {"type": "stop"} if finished else None
    event = (
        native(trap, 1, finish, completion_tokens=count)
        if is_native
        else chat({"content": trap}, tokens=count, finish=finish and "stop")
    )
    assert quick_count(event[6:-2], is_native) == (0 if finished else count)


def test_an_event_is_given_with_the_read_that_ends_it() -> None:
    for ends in (b"\n\n", b"\r\n\r\n", b"\r\r", b"\r\n\r", b"\n\r"):
        events = EventSplitter()
        assert events.feed(b"data: a" + ends) == [b"a"], ends
        assert events.feed(b"\n"[: ends == b"\r\n\r"] + b"data: b" + ends) == [b"b"], ends
        assert events.finish() == []
    assert EventSplitter().feed(b"data: a\r\rdata: b\n\n") == [b"a", b"b"]


def test_comments_and_fields_alone_are_not_the_inside_of_an_event() -> None:
    events = EventSplitter()
    for data, inside in (
        (b": pi", False),
        (b"ng\n\n", False),
        (b"\n", False),
        (b"da", True),
        (b"ta: x", True),
        (b"\n\n", False),
    ):
        events.feed(data)
        assert events.inside_event is inside, data

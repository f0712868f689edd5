"""When tokens came and how many, as other load clients got it wrong: inputs with their right answers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from actors.wire.flight import Flight
from actors.wire.sse import EventSplitter
from orchestrator.points.metrics import summarise
from orchestrator.records import RequestRecord, RequestStatus
from tests.actors.wire_loads import C1, REQUEST, asked, counted, follows, metrics, one
from tests.fakes.raw_server import chunked
from tests.fakes.scripted_endpoint import DONE, chat, frame, trailing_usage, usage


@pytest.mark.parametrize(("chunks", "per_chunk"), [(40, 3), (12, 20)])
def test_time_per_token_counts_tokens_and_a_gap_counts_chunks(chunks: int, per_chunk: int) -> None:
    """Rows 1 and 3: several tokens per chunk, by speculation or by a stream interval."""
    record, writes = one(counted(chunks, per_chunk, 0.004), api="chat")
    span_ms = (record.end_ns - record.chunk_ns[0]) / 1e6
    found = metrics(record)
    assert (record.chunk_tokens, record.output_tokens) == ((per_chunk,) * chunks, chunks * per_chunk)
    assert follows(record.chunk_ns, writes)
    assert found.tpot_ms is not None
    assert found.tpot_ms.p50 == pytest.approx(span_ms / ((chunks - 1) * per_chunk), rel=1e-9)
    assert found.chunk_gap_ms is not None
    assert found.chunk_gap_ms.mean == pytest.approx(span_ms / (chunks - 1), rel=1e-9)
    assert found.tpot_ms.p50 == pytest.approx(found.chunk_gap_ms.mean / per_chunk, rel=1e-9)


def read_at(events: list[tuple[int, bytes]]) -> RequestRecord:
    """The record of a chat answer whose events came at these times (ms)."""
    flight, splitter = Flight(REQUEST, native=False), EventSplitter()
    flight.sent_ns = 0
    for at_ms, data in events:
        flight.answer.take(splitter.feed(data), at_ms * 1_000_000)
    flight.conclude()
    return flight.record(0)


def test_speculation_and_none_are_equal_by_time_per_token() -> None:
    """Row 2: three tokens each 9 ms are one token each 3 ms, though the gaps of the chunks differ by three."""
    end = (400, chat({}, tokens=120, finish="stop") + trailing_usage(120) + DONE)
    plain = read_at([*[(20 + 3 * i, chat({"content": "x"}, tokens=i)) for i in range(1, 121)], end])
    speculated = read_at([*[(20 + 9 * i, chat({"content": "xxx"}, tokens=3 * i)) for i in range(1, 41)], end])
    a, b = metrics(plain), metrics(speculated)
    assert (a.tpot_ms and a.tpot_ms.p50, b.tpot_ms and b.tpot_ms.p50) == (3.0, 3.0)
    assert (a.chunk_gap_ms and a.chunk_gap_ms.p50, b.chunk_gap_ms and b.chunk_gap_ms.p50) == (3.0, 9.0)


def test_text_that_a_parser_holds_back_is_counted_when_it_was_generated() -> None:
    """Row 5: empty deltas with a growing count, then all text at once."""
    events: list[bytes | float] = []
    for i in range(1, 11):
        events += [0.005, chat({}, tokens=i)]
    held = [*events, chat({"content": "all of it"}, tokens=11), chat({}, tokens=11, finish="stop"), DONE]
    record, writes = one(chunked(held), api="chat")
    assert (record.chunk_tokens, record.output_tokens) == ((1,) * 11, 11)
    assert record.first_token_ns is not None
    assert writes[0] <= record.first_token_ns <= writes[1]


@pytest.mark.parametrize("content", [None, ""])
@pytest.mark.parametrize("more", [{}, {"reasoning_content": None}, {"reasoning": "", "tool_calls": None}])
def test_a_role_is_no_token(content: str | None, more: dict[str, Any]) -> None:
    """Row 6: the first chunk of a chat names the role, long before a token."""
    role = chat({"role": "assistant", "content": content, **more})
    events: list[bytes | float] = [
        0.005,
        role,
        0.1,
        chat({"content": "a"}),
        0.02,
        chat({"content": "b"}),
        chat({}, finish="stop"),
        DONE,
    ]
    record, writes = one(chunked(events), api="chat")
    assert record.first_token_ns is not None
    assert writes[1] <= record.first_token_ns <= writes[2]
    assert len(record.chunk_ns) == 2


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_is_generated_like_all_else(name: str) -> None:
    """Rows 7 and 8: nothing but reasoning, under either name."""
    events: list[bytes | float] = [chat({"role": "assistant", "content": ""})]
    for i in range(5):
        events += [0.005, chat({name: f"{i}"})]
    record, writes = one(chunked([*events, chat({}, finish="stop"), trailing_usage(5), DONE]), api="chat")
    assert record.first_token_ns is not None
    assert writes[1] <= record.first_token_ns <= writes[2]
    assert (record.status, record.output_tokens, len(record.chunk_ns)) == (RequestStatus.OK, 5, 5)
    assert metrics(record).tpot_ms is not None


@pytest.mark.parametrize("counts", [True, False])
def test_speed_is_that_of_all_tokens_not_of_the_visible_ones(counts: bool) -> None:
    """Rows 10 and 11: long reasoning, then a burst of content."""
    events: list[bytes | float] = []
    for i in range(1, 31):
        events += [0.004, chat({"reasoning_content": "h"}, tokens=i if counts else None)]
    for i in range(31, 41):
        events += [chat({"content": "x"}, tokens=i if counts else None)]
    record, writes = one(chunked([*events, chat({}, finish="stop"), trailing_usage(40), DONE]), api="chat")
    found = metrics(record)
    assert (record.output_tokens, len(record.chunk_ns)) == (40, 40)
    assert follows(record.chunk_ns[:29], writes[:30])  # from the first of the reasoning on
    assert found.tpot_ms is not None
    assert found.tpot_ms.p50 == pytest.approx((record.end_ns - record.chunk_ns[0]) / 39e6, rel=1e-9)


def test_spaces_are_counted_by_the_server() -> None:
    """Row 12: a hundred tokens of one space each, which no tokenizer finds again in the text."""
    spaces = [chat({"content": " "}) for _ in range(100)]
    record, _ = one(chunked([*spaces, chat({}, finish="length"), trailing_usage(100), DONE]), api="chat")
    assert (record.output_tokens, record.status) == (100, RequestStatus.OK)


def test_without_a_token_nothing_is_measured_and_nothing_divided_by_zero() -> None:
    """Row 14: no text, no usage."""
    records, _ = asked(lambda n: chunked([chat({}), chat({}, finish="stop"), DONE]), 3, api="chat")
    found = summarise(records, level=C1)
    assert {r.status for r in records} == {RequestStatus.EMPTY}
    assert (found.ttft_ms, found.tpot_ms, found.output_throughput_tok_s) == (None, None, None)
    assert found.requests_empty == 3


def test_an_answer_without_a_token_has_no_first_one() -> None:
    """Row 15: every tenth request ends at once."""
    records, _ = asked(lambda n: chunked([DONE]) if n % 10 == 0 else counted(2, 1, 0.0), 30, api="chat")
    found = summarise(records, level=C1)
    assert Counter(r.status for r in records) == {RequestStatus.EMPTY: 3, RequestStatus.OK: 27}
    assert all(r.first_token_ns is None or r.first_token_ns >= r.sent_ns for r in records)
    assert found.ttft_ms is not None
    assert (found.ttft_ms.n, found.requests_empty) == (27, 3)


@pytest.mark.parametrize("choices", [{"choices": []}, {"choices": None}, {}])
def test_a_usage_frame_at_the_end_extends_nothing(choices: dict[str, Any]) -> None:
    """Row 17: usage 50 ms after the last text, without a choice."""
    events: list[bytes | float] = [chat({"content": "a"}), 0.01, chat({"content": "b"}), chat({}, finish="stop"), 0.05]
    record, writes = one(chunked([*events, frame(choices | usage(2)), DONE]), api="chat")
    assert (record.status, record.output_tokens) == (RequestStatus.OK, 2)
    assert record.end_ns == record.chunk_ns[-1] <= writes[3]

from __future__ import annotations

from itertools import pairwise

import pytest

from actors.wire.sse import EventSplitter


def pieces(data: bytes, *cuts: int) -> list[bytes]:
    bounds = [0, *cuts, len(data)]
    return [data[a:b] for a, b in pairwise(bounds)]


def payloads(*reads: bytes) -> list[bytes]:
    events = EventSplitter()
    found = [payload for read in reads for payload in events.feed(read)]
    return found + events.finish()


STREAM = 'data: {"text":"✅漢字"}\n\n: ping\n\ndata: {"n":1}\n\ndata: {"n":2}\n\ndata: [DONE]\n\n'.encode()
EVENTS = ['{"text":"✅漢字"}'.encode(), b'{"n":1}', b'{"n":2}', b"[DONE]"]


def test_five_events_in_one_read_are_five_payloads() -> None:
    assert payloads(STREAM) == EVENTS


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_every_cut_of_a_stream_gives_the_same_payloads(line_end: bytes) -> None:
    stream = STREAM.replace(b"\n", line_end)
    for cut in range(1, len(stream)):
        assert payloads(*pieces(stream, cut)) == EVENTS, cut


def test_single_bytes_give_the_same_payloads() -> None:
    stream = STREAM.replace(b"\n", b"\r\n")
    assert payloads(*(stream[i : i + 1] for i in range(len(stream)))) == EVENTS


def test_an_end_mark_without_its_blank_line_is_given_at_the_end() -> None:
    assert payloads(b"data: [DO", b"NE]") == [b"[DONE]"]


def test_lines_of_one_event_are_joined_and_other_fields_ignored() -> None:
    assert payloads(b'event: delta\nid: 7\ndata: {"a":\ndata:1}\n\n') == [b'{"a":\n1}']


def test_comments_and_extra_blank_lines_are_no_events() -> None:
    assert payloads(b"\n\n: keep-alive\n\n\n\ndata: x\n\n") == [b"x"]


def test_blanks_around_data_are_no_part_of_it_and_empty_data_is_no_event() -> None:
    assert payloads(b"data:\n\ndata: \n\ndata:  [DONE] \n\n") == [b"[DONE]"]


def test_an_event_named_error_is_given_as_an_error_object() -> None:
    assert payloads(b'event: error\ndata: {"message":"boom"}\n\n') == [b'{"error":{"message":"boom"}}']
    assert payloads(b"event:error\ndata: boom\n\n") == [b'{"error":"boom"}']
    assert payloads(b'event: error\ndata: {"error":"boom"}\n\n') == [b'{"error":"boom"}']
    assert payloads(b"event: error\n\n") == []

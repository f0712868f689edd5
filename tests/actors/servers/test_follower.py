"""Lines and progress bars out of a growing file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from actors.servers.follower import LineSplitter, LogTail, Segment, follow, split_log

LOG = (
    "[2026-08-07 17:35:59 TP1] Capture begin\r\n"
    "\rCapturing batches (bs=4 avail_mem=1.54 GB):   0%|          | 0/2 [00:00<?, ?it/s]"
    "\rCapturing batches (bs=2 avail_mem=1.50 GB):  50%|#####     | 1/2 [00:01<00:01, 1.00it/s]"
    "[2026-08-07 17:36:02 TP0] glued — grüße\n"
    "\n"
    "Loading shards: 100% Completed | 4/4 [00:03<00:00,  1.31it/s]\n"
    "bad \udcff byte\n"
    "no newline at the end"
).encode("utf-8", errors="surrogateescape")
SEGMENTS = [
    Segment("[2026-08-07 17:35:59 TP1] Capture begin", 1),
    Segment("Capturing batches (bs=4 avail_mem=1.54 GB):   0%|          | 0/2 [00:00<?, ?it/s]", 2, is_bar=True),
    Segment("Capturing batches (bs=2 avail_mem=1.50 GB):  50%|#####     | 1/2 [00:01<00:01, 1.00it/s]", 2, is_bar=True),
    Segment("[2026-08-07 17:36:02 TP0] glued — grüße", 2),
    Segment("Loading shards: 100% Completed | 4/4 [00:03<00:00,  1.31it/s]", 4, is_bar=True),
    Segment("bad � byte", 5),
    Segment("no newline at the end", 6),
]


def test_a_log_is_split_into_lines_and_bars() -> None:
    assert split_log(LOG) == SEGMENTS


def test_the_segments_are_the_same_wherever_the_bytes_are_cut() -> None:
    for cut in range(len(LOG) + 1):
        splitter = LineSplitter()
        assert [*splitter.feed(LOG[:cut]), *splitter.feed(LOG[cut:]), *splitter.flush()] == SEGMENTS


def test_the_segments_are_the_same_when_bytes_come_one_by_one() -> None:
    splitter = LineSplitter()
    segments = [segment for byte in LOG for segment in splitter.feed(bytes([byte]))]
    assert segments + splitter.flush() == SEGMENTS


def test_a_line_without_end_is_cut_and_its_rest_left_out() -> None:
    data = b"first\n" + b"x" * 300_000 + b"\nnext\n"
    at_once = split_log(data)
    splitter = LineSplitter()
    in_bites = [s for i in range(0, len(data), 50_000) for s in splitter.feed(data[i : i + 50_000])]
    assert at_once == in_bites == [Segment("first", 1), Segment("x" * 65536, 2), Segment("next", 3)]


def test_a_tail_takes_a_large_file_in_bites_and_loses_nothing(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"".join(b"%08d\n" % n for n in range(100_000)))
    tail = LogTail(file)
    first = tail.read()
    assert (len(first), tail.is_behind) == (29_127, True)

    async def rest() -> list[list[Segment]]:
        return [bite async for bite in follow(file, lambda: True)]

    bites = asyncio.run(rest())
    assert [len(bite) for bite in bites] == [29_127, 29_127, 29_127, 12_619]
    last = bites[-1][-1]
    assert (last.text, last.number) == ("00099999", 100_000)


def test_the_bar_at_the_end_is_seen_before_it_ends() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"\r 25%|##   | 3/12 [00:13<00:33, 3.70s/it]") == []
    assert splitter.bar == Segment(" 25%|##   | 3/12 [00:13<00:33, 3.70s/it]", 1, is_bar=True)
    assert LineSplitter().bar is None


def test_a_tail_gives_what_came_since_and_a_standing_bar_only_when_it_moved(tmp_path: Path) -> None:
    file = tmp_path / "log"
    tail = LogTail(file)
    assert tail.read() == []
    file.write_bytes(b"one\n 0%| | 0/2 [00:00<?, ?it/s]")
    assert tail.read() == [Segment("one", 1), Segment(" 0%| | 0/2 [00:00<?, ?it/s]", 2, is_bar=True)]
    assert tail.read() == []
    with file.open("ab") as log:
        log.write(b"\r 50%| | 1/2 [00:01<?, ?it/s]")
    assert [segment.text for segment in tail.read()] == [" 0%| | 0/2 [00:00<?, ?it/s]", " 50%| | 1/2 [00:01<?, ?it/s]"]
    with file.open("ab") as log:
        log.write(b"\nlast")
    assert [segment.text for segment in tail.rest()] == [" 50%| | 1/2 [00:01<?, ?it/s]", "last"]


def test_a_file_that_shrank_is_read_from_its_start(tmp_path: Path) -> None:
    file = tmp_path / "log"
    tail = LogTail(file)
    file.write_bytes(b"a long first line\n")
    tail.read()
    file.write_bytes(b"new\n")
    assert tail.read() == [Segment("new", 1)]


@pytest.mark.parametrize("written", [b"one\ntwo", b"one\ntwo\n"])
def test_following_ends_with_the_rest_of_the_file(tmp_path: Path, written: bytes) -> None:
    file = tmp_path / "log"
    polls = iter([False, False, True])

    async def read() -> list[str]:
        file.write_bytes(written)
        return [s.text async for batch in follow(file, lambda: next(polls), poll_s=0.0) for s in batch]

    assert asyncio.run(read()) == ["one", "two"]

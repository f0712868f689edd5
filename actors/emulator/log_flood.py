"""Log lines by the megabyte, of the kinds that trouble readers of logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, cycle

from actors.emulator.log import progress_bar

_LONG = 256 * 1024
_BLOCK = 16 * 1024


def flood(kinds: Sequence[str], stamp: str = "2026-11-29 13:14:54") -> Iterator[bytes]:
    """Blocks of 16 KiB or more, a kind after the other, without end. Every block but a "bar" ends its line."""
    for number, kind in zip(count(), cycle(kinds), strict=False):
        if kind == "long":
            yield f"[{stamp}] self.cur_batch.reqs=[{'Req(rid=d4424f3eb90345f0), ' * (_LONG // 26)}]\n".encode()
        elif kind == "bar":
            states = (progress_bar("Downloading shards", i % 100, 100, 1.0, 0.01) for i in range(_BLOCK // 80))
            yield "".join(f"\r{state}" for state in states).encode()
        else:
            yield _line(kind, stamp, number) * (_BLOCK // 100)


def _line(kind: str, stamp: str, number: int) -> bytes:
    text = f"[{stamp}] Ignore import error when loading module {number}: cannot import name 'x' from 'y' (__init__.py)"
    if kind == "ansi":
        return f"\x1b[33m{text}\x1b[0m\n".encode()
    return text.encode() + (b" \xff\xfe\xc3\x28 \xe2\x82\n" if kind == "invalid_utf8" else b"\n")

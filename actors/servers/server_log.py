"""The log file of one server, a bite at a time, since a log may be larger than memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from actors.servers.follower import LineSplitter, Segment
from actors.servers.launch import conceal

_BITE = 256 * 1024


class ServerLog:
    """A file that may not be there yet; None for a server that we did not start."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def lines(self) -> int:
        """How many whole lines it has."""
        return sum(data.count(b"\n") for data in self._bites(0, None))

    def segments(self, began: int = 0, ended: int | None = None) -> Iterator[Segment]:
        """What stands between two places in the file (bytes), numbered as lines of the whole file."""
        splitter = LineSplitter(skim=True)
        for data in self._bites(0, began):
            splitter.feed(b"\n" * data.count(b"\n"))
        for data in self._bites(began, ended):
            yield from splitter.feed(data)
        yield from splitter.flush()

    def packed(self, secrets: frozenset[str]) -> bytes:
        """Secrets replaced, zstd-compressed; without its size in the header."""
        import zstandard

        packing = zstandard.ZstdCompressor(level=9).compressobj()
        packed = bytearray()
        for line in self._whole_lines():
            packed += packing.compress(conceal(line.decode("utf-8", errors="replace"), secrets).encode())
        return bytes(packed + packing.flush())

    def _whole_lines(self) -> Iterator[bytes]:
        if self._path is not None and self._path.exists():
            with self._path.open("rb") as file:
                yield from file

    def _bites(self, began: int, ended: int | None) -> Iterator[bytes]:
        if self._path is None or not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(began)
            left = None if ended is None else max(ended - began, 0)
            while data := file.read(_BITE if left is None else min(_BITE, left)):
                left = None if left is None else left - len(data)
                yield data

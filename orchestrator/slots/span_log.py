"""The logs of all ranks of one server in one file, and how they are told apart again. Pure but for zstd."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from actors.servers.follower import Segment

_HEAD = "==== rank {rank} of {nnodes} on {host} ===="
_HEADS = re.compile(r"^==== (?P<of>rank \d+ of \d+ on \S+) ====$")


def joined_logs(logs: Sequence[tuple[str, bytes]]) -> bytes:
    """Logs (host, zstd-compressed), rank by rank, as one such log."""
    import zstandard

    packing = zstandard.ZstdCompressor(level=9).compressobj()
    packed = bytearray()
    for rank, (host, log) in enumerate(logs):
        head = _HEAD.format(rank=rank, nnodes=len(logs), host=host.replace(" ", "-"))
        packed += packing.compress(f"{head}\n".encode())
        last = b"\n"
        for piece in _unpacked(log):
            packed += packing.compress(piece)
            last = piece[-1:]
        if last != b"\n":
            packed += packing.compress(b"\n")
    return bytes(packed + packing.flush())


def _unpacked(log: bytes) -> Iterator[bytes]:
    """What a damaged log still gives, piece by piece."""
    import zstandard

    if not log:
        return
    reader = zstandard.ZstdDecompressor().stream_reader(log)
    while True:
        try:
            piece = reader.read(1 << 18)
        except zstandard.ZstdError:
            return
        if not piece:
            return
        yield piece


def rank_logs(segments: Iterable[Segment]) -> Iterator[tuple[str, Iterator[Segment]]]:
    """The parts of a log, each with what it is of: `rank 1 of 2 on gpu-b`, or nothing if it has no parts.

    Each part must be read before the next one.
    """
    of = ""

    def part(segment: Segment) -> str:
        nonlocal of
        head = _HEADS.match(segment.text)
        of = head["of"] if head else of
        return of

    for of_part, lines in itertools.groupby(segments, part):
        yield of_part, (line for line in lines if not _HEADS.match(line.text))

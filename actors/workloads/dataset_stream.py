"""A file of prompts or requests as numbered lines or JSON values, unpacked on the way, never all of it in memory.

Packed with gzip or zstd or not is seen by the first bytes. Text is UTF-8, with or without a byte order mark; lines end
with LF or CRLF. Whatever is wrong is told as BadInput with file and line.
"""

from __future__ import annotations

import codecs
import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import zstandard

from orchestrator.errors import BadInput

# Of one line or one value of an array; far above any context window.
_MOST_BYTES = 64 << 20
_MOST_HEAD_BYTES = 4096
_CHUNK_BYTES = 1 << 20
_DECODER = json.JSONDecoder()
_OF_NUMBERS = "0123456789.eE+-"
_SPACE = " \t\r\n"


def chunks(path: Path) -> Iterator[bytes]:
    """The unpacked bytes of a file in pieces, without a byte order mark."""
    try:
        with path.open("rb") as file:
            first = True
            for chunk in _unpacked(file):
                if first and chunk.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                    raise BadInput(f"{path}: is UTF-16 text; save it as UTF-8")
                yield chunk.removeprefix(codecs.BOM_UTF8) if first else chunk
                first = False
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise BadInput(f"{path}: cannot be read on this host: {error or type(error).__name__}") from error


def first_line(path: Path) -> tuple[int, bytes]:
    """The beginning of the first line that is not blank, and its number; of a file without one (1, b"")."""
    number, seen = 1, b""
    for chunk in chunks(path):
        seen += chunk
        start = len(seen) - len(seen.lstrip())
        number += seen.count(b"\n", 0, start)
        seen = seen[start:]
        if len(seen) >= _MOST_HEAD_BYTES or b"\n" in seen:
            break
    return number, seen[:_MOST_HEAD_BYTES].partition(b"\n")[0]


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, with their numbers from 1 on, without their ends."""
    number, parts = 1, [b""]
    for chunk in chunks(path):
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            line = b"".join(parts) + piece
            if line.strip():
                yield number, line.removesuffix(b"\r")
            number += 1
            parts = []
        parts.append(rest)
        if sum(map(len, parts)) > _MOST_BYTES:
            raise BadInput(f"{path}:{number}: a line is longer than 64 MiB; is this a file of prompts?")
    if (line := b"".join(parts)).strip():
        yield number, line.removesuffix(b"\r")


def json_line(line: bytes, place: str) -> Any:
    """The value of one line."""
    with suppress(orjson.JSONDecodeError):
        return orjson.loads(line)
    try:  # the slower one takes halves of a pair of escapes, which dumps of chats do hold
        return json.loads(line)
    except ValueError as error:
        raise BadInput(f"{place}: is no JSON: {error}") from None


def text_line(line: bytes, place: str) -> str:
    """The text of one line."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{place}: is not UTF-8 text: {error.reason} at byte {error.start + 1} of the line") from None


def array_values(path: Path) -> Iterator[tuple[int, Any]]:
    """The values of a file that is one JSON array, each with the number of the line where it begins."""
    array = _Array(path)
    array.expect("[")
    if array.peek() != "]":
        yield array.value()
        while array.peek() == ",":
            array.expect(",")
            yield array.value()
    array.expect("]")
    if array.peek():
        raise BadInput(f"{path}:{array.line}: something follows the end of the JSON array")


class _Array:
    """A place in a JSON file that is read as far as its next value."""

    def __init__(self, path: Path) -> None:
        self.line = 1
        self._path = path
        self._chunks = chunks(path)
        self._decode = codecs.getincrementaldecoder("utf-8")()
        self._text = ""
        self._at = 0
        self._ended = False

    def peek(self) -> str:
        """The next character that is no space, empty at the end of the file."""
        while True:
            start = self._at
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self._at += 1
            self.line += self._text.count("\n", start, self._at)
            if self._at < len(self._text):
                return self._text[self._at]
            if self._ended:
                return ""
            self._read(_CHUNK_BYTES)

    def expect(self, character: str) -> None:
        found = self.peek()
        if found != character:
            told = repr(found) if found else "the end of the file"
            raise BadInput(f"{self._path}:{self.line}: is no JSON array: {told} where {character!r} is due")
        self._at += 1

    def value(self) -> tuple[int, Any]:
        """The line where the next value begins, and the value."""
        self.peek()
        while True:
            try:
                found, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                self._want_more(error)
                continue
            if not self._ended and not self._text[end:].strip(_OF_NUMBERS):  # which may go on
                self._read(_CHUNK_BYTES)
                continue
            line = self.line
            self.line += self._text.count("\n", self._at, end)
            self._at = end
            return line, found

    def _want_more(self, error: json.JSONDecodeError) -> None:
        """Read on if the value may only be cut; an error well before the end of what was read is one."""
        cut = len(self._text) - error.pos < 16 or error.msg.startswith("Unterminated string")
        size = len(self._text) - self._at
        if not cut or self._ended or size > _MOST_BYTES:
            line = self.line + self._text.count("\n", self._at, error.pos)
            raise BadInput(f"{self._path}:{line}: is no JSON: {error.msg}") from None
        self._read(max(size, _CHUNK_BYTES))  # twice as much each time, lest a long value be scanned too often

    def _read(self, size: int) -> None:
        parts = [self._text[self._at :]]
        self._at = 0
        try:
            while size > 0 and not self._ended:
                chunk = next(self._chunks, None)
                self._ended = chunk is None
                parts.append(self._decode.decode(chunk or b"", final=self._ended))
                size -= len(parts[-1])
        except UnicodeDecodeError as error:
            line = self.line + sum(part.count("\n") for part in parts)
            line += error.object[: error.start].count(b"\n")
            raise BadInput(f"{self._path}:{line}: is not UTF-8 text: {error.reason}") from None
        self._text = "".join(parts)


def _unpacked(file: BinaryIO) -> Iterator[bytes]:
    magic = file.read(4)
    file.seek(0)
    if magic == zstandard.FRAME_HEADER:
        yield from _frames(file)
        return
    source = gzip.GzipFile(fileobj=file) if magic.startswith(b"\x1f\x8b") else file
    while chunk := source.read(_CHUNK_BYTES):
        yield chunk


def _frames(file: BinaryIO) -> Iterator[bytes]:
    """What zstd packed, in one or more frames; EOFError for one that is cut, which a stream reader passes over."""
    packed = b""
    frame = None
    while packed or (packed := file.read(_CHUNK_BYTES)):
        frame = frame or zstandard.ZstdDecompressor().decompressobj()
        if unpacked := frame.decompress(packed):
            yield unpacked
        packed = frame.unused_data if frame.eof else b""
        frame = None if frame.eof else frame
    if frame is not None:
        raise EOFError("the zstd stream ends in the middle")

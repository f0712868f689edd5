"""Text in and out: a deterministic stand-in for a tokenizer."""

from __future__ import annotations

import random
import zlib
from collections.abc import Collection, Sequence
from typing import TypeVar

T = TypeVar("T")

CHARACTERS_PER_TOKEN = 4
VOCABULARY_SIZE = 151936
FIRST_WORD_ID = 1000

_VOCABULARY = """
the a of to and in is that for it as with on by this be are from or an at not which have but one all can has
will more when if their also time some other new than only about over into its after first most they made
such through between under while where each because many system model value code data function return list
method result state number point line name key file user request response server token step batch memory
cache graph depth speed measure test change order small large same different long short high low next last
used given set found built reads writes takes keeps holds shows runs ends starts café naïve — … ≈ Zürich 東京
数据 привет ñandú
"""
_PIECES = (*(" " + word for word in _VOCABULARY.split()), ",", ".", "\n", " (", ")", ":")
_CYCLE = 4096
_ORDER = 2 * random.Random(7).choices(range(len(_PIECES)), k=_CYCLE)
_IDS = tuple(FIRST_WORD_ID + index for index in _ORDER)
_TEXTS = tuple(_PIECES[index] for index in _ORDER)


def tokenize(text: str) -> tuple[int, ...]:
    """Ids of a text: one token for each 4 characters, the same id for the same characters."""
    pieces = (text[i : i + CHARACTERS_PER_TOKEN] for i in range(0, len(text), CHARACTERS_PER_TOKEN))
    return tuple(zlib.crc32(piece.encode()) % VOCABULARY_SIZE for piece in pieces)


def output_seed(prompt: Sequence[int]) -> int:
    """Where in the endless text an answer starts: a function of the prompt alone, as with greedy decoding."""
    return zlib.crc32(repr(prompt[-64:]).encode()) % _CYCLE


def output_ids(seed: int, start: int, end: int) -> list[int]:
    """Ids of output tokens `start` to `end`."""
    return _slice(_IDS, seed, start, end)


def output_text(seed: int, start: int, end: int) -> str:
    """Text of output tokens `start` to `end`; pieces join up, since every token is whole words."""
    return "".join(_slice(_TEXTS, seed, start, end))


def first_stop_id(seed: int, ids: Collection[int], end: int) -> int | None:
    """Number of output tokens up to and with the first of `ids`, if it comes within `end` tokens."""
    return next((n for n, token in enumerate(output_ids(seed, 0, end), 1) if token in ids), None)


def first_stop_text(seed: int, stops: Sequence[str], end: int) -> tuple[int, str, int] | None:
    """The first stop string within `end` tokens: number of tokens, which one, and where in the text it begins."""
    text = output_text(seed, 0, end)
    found = [(at + len(stop), at, stop) for stop in stops if stop and (at := text.find(stop)) >= 0]
    if not found:
        return None
    until, at, stop = min(found)
    tokens = next(n for n in range(1, end + 1) if len(output_text(seed, 0, n)) >= until)
    return tokens, stop, at


def _slice(cycle: tuple[T, ...], seed: int, start: int, end: int) -> list[T]:
    if end - start <= _CYCLE:
        first = (seed + start) % _CYCLE
        return list(cycle[first : first + end - start])
    return [cycle[(seed + index) % _CYCLE] for index in range(start, end)]

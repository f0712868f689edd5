"""Text of a wished length in three kinds that a draft model finds hard, easier and very easy to continue. Pure.

random_text  a passage of novels and of technical documentation, as they were written
code         a passage of Python modules, as they were written
repetitive   a service log of one template

Passages are contiguous: how much of a draft is accepted depends on what comes before, which shuffled sentences lack.
The same arguments give the same text on every machine and every version of Python.
"""

from __future__ import annotations

import math
import random
from hashlib import sha256

from actors.workloads.corpus import KINDS, corpus, shelves, start_from, stretch

# Passages up to this length (44k tokens) do not go on at the other end of the corpus.
_NOT_WRAPPED = 200_000
_STEPS = ("process", "resize", "validate", "store")


def text_of(kind: str, characters: int, seed: str) -> str:
    """A passage from a place that the seed decides: at least one character, at most `characters`, cut at a space.

    A longer text of the same seed begins with the shorter one, but for half a word at the cut. Passages of two seeds
    may overlap by chance, as two pages opened at random do; those of `passage` do not.
    """
    wanted = max(characters, 1)
    if kind not in KINDS:
        return _ended(_log(wanted, seed), wanted)
    places = len(corpus(kind)) - _NOT_WRAPPED
    return _from_start(kind, start_from(kind, _number_of(seed) % places), wanted)


def passage(kind: str, number: int, characters: int, seed: str, *, room: int | None = None) -> str:
    """The passage of one number of a series: like `text_of`, but no two numbers share text while the corpus lasts.

    `room` is what every passage of the series has to itself, `characters` if not told: whoever draws lengths, or tries
    several for one number of tokens, gives the longest one, the same for the whole series. With a room of 36,000
    characters (8k tokens) prose lasts for 170 passages and code for 120; later ones begin within those before. The seed
    decides the order. One that is longer than its room takes twice, four times, ... as much: finding the starts for a
    size costs tens of milliseconds, and a size of its own for each long passage would cost them each time.
    """
    wanted = max(characters, 1)
    if kind not in KINDS:
        return text_of(kind, wanted, f"{seed} {number}")
    size = room or wanted
    while size < wanted:
        size *= 2
    starts = shelves(kind, size)
    turn, place = divmod(number, len(starts))
    start = starts[_permuted(place, len(starts), f"{seed} {turn}")]
    shift = turn * 5 % 8 * size // 8  # 5 goes through all eighths before it comes back to the first
    return _from_start(kind, start_from(kind, start + shift) if shift else start, wanted)


def cut_at_space(text: str, characters: int) -> str:
    """The beginning of a text, cut at a space or a line's end if one is in its last twelfth."""
    if len(text) <= characters:
        return text
    end = max(characters, 1)
    space = max(text.rfind(" ", 0, end + 1), text.rfind("\n", 0, end + 1))
    return text[: space if space >= end - end // 12 else end]


def _from_start(kind: str, start: int, wanted: int) -> str:
    return _ended(stretch(kind, start, wanted + 1), wanted)


def _ended(text: str, wanted: int) -> str:
    cut = cut_at_space(text, wanted)
    return cut.rstrip(" \n") or cut


def _log(characters: int, seed: str) -> str:
    rng = random.Random(seed)
    number, second = rng.randrange(10_000, 90_000), rng.randrange(0, 80_000)
    lines: list[str] = []
    length = 0
    while length < characters:
        number += 1
        second = (second + 1) % 86_400
        clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
        lines.append(f"2025-03-14 {clock} INFO worker=3 job={number} step={_STEPS[number % 4]} status=ok retries=0\n")
        length += len(lines[-1])
    return "".join(lines)


def _permuted(place: int, count: int, seed: str) -> int:
    """Where an affine permutation of `count` places moves one of them."""
    step = 1 + _number_of(f"step {seed}") % count
    while math.gcd(step, count) != 1:
        step += 1
    return (place * step + _number_of(seed)) % count


def _number_of(seed: str) -> int:
    return int.from_bytes(sha256(seed.encode()).digest()[:8], "big")

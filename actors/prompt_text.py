"""Text of a wished length in three kinds that a draft model finds hard, easier and very easy to continue. Pure.

prose       sentences of `prose.txt` in random order
code        small Python functions over a random vocabulary
repetitive  a service log of one template
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

_NOUNS = ("order", "batch", "token", "index", "frame", "ledger", "packet", "route", "vertex", "sensor", "ticket",
          "window", "record", "cursor", "bucket", "signal", "worker", "header", "margin", "sample")  # fmt: skip
_VERBS = ("merge", "split", "filter", "rank", "encode", "collect", "verify", "shift", "reduce", "balance")
_STEPS = ("process", "resize", "validate", "store")


def text_of(kind: str, characters: int, seed: str) -> str:
    """At least one character and at most `characters`, cut at a space; the same for the same seed."""
    pieces = _PIECES[kind](random.Random(seed))
    parts: list[str] = []
    length = 0
    while length < characters:
        part = next(pieces)
        parts.append(part)
        length += len(part)
    return cut_at_space("".join(parts), characters).rstrip(" ")


def passage(kind: str, number: int, characters: int, seed: str, *, room: int | None = None) -> str:
    """The passage of one number of a series."""
    return text_of(kind, characters, f"{seed} {number}")


def cut_at_space(text: str, characters: int) -> str:
    """The beginning of a text, without half a word at its end where that can be."""
    if len(text) <= characters:
        return text
    end = max(characters, 1)
    space = text.rfind(" ", 0, end + 1)
    return text[: space if space > end // 2 else end]


@cache
def prose_sentences() -> tuple[str, ...]:
    """The sentences of `prose.txt`, each with the space that follows it."""
    text = Path(__file__).with_name("prose.txt").read_text(encoding="utf-8")
    return tuple(f"{s} " for s in re.split(r"(?<=[.?!])\s+", text) if s)


def _prose(rng: random.Random) -> Iterator[str]:
    sentences = prose_sentences()
    while True:
        yield rng.choice(sentences)


def _code(rng: random.Random) -> Iterator[str]:
    while True:
        verb, noun, other = rng.choice(_VERBS), rng.choice(_NOUNS), rng.choice(_NOUNS)
        limit = rng.randrange(2, 500)
        yield (
            f"def {verb}_{noun}s({noun}s: list[dict], {other}: int = {limit}) -> list[dict]:\n"
            f'    """{verb.capitalize()} every {noun} whose {other} is above the limit."""\n'
            f"    result = []\n"
            f"    for position, {noun} in enumerate({noun}s):\n"
            f'        if {noun}["{other}"] > {other} and position % {rng.randrange(2, 9)} == 0:\n'
            f'            result.append({{"id": position, "{other}": {noun}["{other}"] * {rng.randrange(2, 99)}}})\n'
            f'    return sorted(result, key=lambda item: item["{other}"])\n\n\n'
        )


def _repetitive(rng: random.Random) -> Iterator[str]:
    number, second = rng.randrange(10_000, 90_000), rng.randrange(0, 80_000)
    while True:
        number += 1
        second = (second + 1) % 86_400
        clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
        yield f"2025-03-14 {clock} INFO worker=3 job={number} step={_STEPS[number % 4]} status=ok retries=0\n"


_PIECES: dict[str, Callable[[random.Random], Iterator[str]]] = {
    "random_text": _prose,
    "code": _code,
    "repetitive": _repetitive,
}

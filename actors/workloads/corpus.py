"""Real text that is shipped with the project (actors/corpus): prose of 6.4 MB and code of 4.6 MB, read when first used.

A corpus is a ring: what reaches beyond its end goes on at its beginning. Positions count characters.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from pathlib import Path

import zstandard

# The first digits of the SHA-256 of all that prompts are cut from. Another corpus makes another workload.
CORPUS_VERSION = "328752e36c93"
FOLDER = Path(__file__).with_name("corpus")
_FILES = {"random_text": "prose", "code": "code"}
_STARTS = {
    # A paragraph, or a sentence that follows another one rather than a title.
    "random_text": re.compile(r"""(?:\n\n|(?<!\bMr)(?<!\bDr)(?<!\bSt)(?<!Mrs)[.?!]["')]* )(?=["'(]?[A-Z])"""),
    # A function, a class, or a method of a class: whole classes are up to 60,000 characters apart.
    "code": re.compile(r"^(?=@|class |(?:    )?(?:async )?def )", re.MULTILINE),
}
KINDS = frozenset(_FILES)


@cache
def corpus(kind: str) -> str:
    """All text of `random_text` or `code`. About 20 ms when first asked for, and a byte of memory a character."""
    packed = (FOLDER / f"{_FILES[kind]}.txt.zst").read_bytes()
    return zstandard.ZstdDecompressor().decompress(packed).decode("utf-8")


def start_from(kind: str, position: int) -> int:
    """Where the first sentence, paragraph or function at or after a position begins; past the last one it is 0."""
    found = _STARTS[kind].search(corpus(kind), position)
    return found.end() if found else 0


def stretch(kind: str, start: int, characters: int) -> str:
    """The text from `start` on, of exactly this length; the ring is gone round as often as that takes."""
    text = corpus(kind)
    part = text[start : start + characters]
    missing = characters - len(part)
    if missing <= 0:
        return part
    rounds, rest = divmod(missing, len(text))
    return part + text * rounds + text[:rest]


@lru_cache(maxsize=32)
def shelves(kind: str, room: int) -> tuple[int, ...]:
    """Starts that are `room` or more characters apart, up to the end of the corpus; never none."""
    size = len(corpus(kind))
    found: list[int] = []
    start = start_from(kind, 0)
    while start + room <= size:
        found.append(start)
        following = start_from(kind, start + room)
        if following <= start:
            break
        start = following
    return tuple(found) or (start,)

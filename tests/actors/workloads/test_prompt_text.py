from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.workloads.corpus import CORPUS_VERSION, FOLDER, corpus, shelves, stretch
from actors.workloads.prompt_text import passage, text_of

KINDS = ["random_text", "code", "repetitive"]
ROOT = Path(__file__).resolve().parent.parent.parent.parent


def place(text: str, kind: str = "random_text") -> tuple[int, int]:
    start = corpus(kind).index(text)
    return start, start + len(text)


def overlaps(places: list[tuple[int, int]]) -> int:
    places = sorted(places)
    return sum(end > start for (_, end), (start, _) in pairwise(places))


def test_the_version_of_the_corpus_is_the_hash_of_its_files() -> None:
    files = sorted(FOLDER.glob("*.zst"))

    assert [f.name for f in files] == ["code.txt.zst", "prose.txt.zst"]
    assert hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()[:12] == CORPUS_VERSION


def test_the_corpora_hold_a_hundred_prompts_of_8k_tokens_without_repetition() -> None:
    assert len(shelves("random_text", 36_000)) > 170
    assert len(shelves("code", 36_000)) > 120


def test_the_corpora_are_free_of_boilerplate_and_of_modules_with_a_notice_of_their_own() -> None:
    assert "gutenberg" not in corpus("random_text").lower()
    assert "copyright" not in corpus("code").lower()
    assert max(corpus("random_text")) <= "\xff"  # a byte of memory a character
    assert max(corpus("code")) <= "\xff"


def test_the_licence_of_what_is_not_ours_is_shipped_beside_it() -> None:
    told = (FOLDER / "README.md").read_text(encoding="utf-8")

    assert "public domain" in told
    assert "LICENSE-PSF.txt" in told
    assert "PYTHON SOFTWARE FOUNDATION LICENSE VERSION 2" in (FOLDER / "LICENSE-PSF.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS)
@given(characters=st.integers(-3, 60_000), seed=st.integers(0, 10**6).map(str))
def test_a_text_has_at_least_one_and_at_most_the_wished_characters(kind: str, characters: int, seed: str) -> None:
    text = text_of(kind, characters, seed)

    assert 1 <= len(text) <= max(characters, 1)
    assert len(text) >= characters - 300 or len(text) >= characters // 2
    assert text == text_of(kind, characters, seed)


@pytest.mark.parametrize("kind", KINDS)
def test_a_longer_text_begins_with_the_shorter_one(kind: str) -> None:
    """So that a length can be searched for: the text stays the same one."""
    longest = text_of(kind, 9000, "seed")
    numbered = passage(kind, 500, 9000, "seed", room=9000)

    for characters in range(1, 9000, 97):
        short = text_of(kind, characters, "seed")
        assert longest.startswith(short)
        assert numbered.startswith(passage(kind, 500, characters, "seed", room=9000))


def test_a_prompt_of_prose_is_a_contiguous_passage_that_begins_with_a_sentence() -> None:
    for seed in map(str, range(50)):
        start, _ = place(text_of("random_text", 36_000, seed))
        before, text = corpus("random_text")[:start], corpus("random_text")[start : start + 2]
        assert before.endswith("\n\n") or before.rstrip("\"')")[-2:-1] in ".?!" or before.rstrip("\"') ")[-1] in ".?!"
        assert not before.endswith(("Mr. ", "Mrs. ", "Dr. ", "St. "))
        assert text[0].isupper() or text[1].isupper()


def test_a_prompt_of_code_begins_with_a_definition() -> None:
    for seed in map(str, range(50)):
        first = text_of("code", 4000, seed).splitlines()[0].strip()
        assert first.startswith(("def ", "class ", "async def ", "@"))


@pytest.mark.parametrize(("kind", "different"), [("random_text", 295), ("code", 265), ("repetitive", 298)])
def test_short_texts_of_other_seeds_are_mostly_others(kind: str, different: int) -> None:
    """All those whose seeds point into one long table or docstring begin at the function after it."""
    assert len({text_of(kind, 500, str(seed)) for seed in range(300)}) >= different


def test_a_text_longer_than_the_corpus_goes_round_it() -> None:
    size = len(corpus("code"))
    text = text_of("code", size + 5000, "long")

    assert size + 4000 < len(text) <= size + 5000
    assert text[size : size + 4000] == text[:4000]
    assert stretch("code", size - 3, 6) == corpus("code")[-3:] + corpus("code")[:3]
    assert len(stretch("code", 7, 2 * size + 1)) == 2 * size + 1


@pytest.mark.parametrize(("kind", "count"), [("random_text", 170), ("code", 120)])
def test_numbered_passages_share_no_text_while_the_corpus_lasts(kind: str, count: int) -> None:
    places = [place(passage(kind, number, 36_000, "seed"), kind) for number in range(count)]

    assert overlaps(places) == 0
    assert places != sorted(places)


def test_passages_of_drawn_lengths_share_no_text_if_all_have_the_same_room() -> None:
    lengths = [100 + 997 * n % 4900 for n in range(900)]
    texts = [passage("random_text", n, size, "seed", room=5000) for n, size in enumerate(lengths)]

    assert overlaps([place(text) for text in texts]) == 0


def test_passages_longer_than_their_room_are_cut_from_starts_of_a_few_sizes_only() -> None:
    shelves.cache_clear()
    for number in range(50):
        passage("random_text", number, 5000 + 300 * number, "seed", room=5000)

    assert shelves.cache_info().misses == 3  # for 5,000, 10,000 and 20,000 characters


def test_passages_after_the_last_new_one_begin_elsewhere() -> None:
    count = len(shelves("code", 36_000))
    first = {passage("code", n, 36_000, "seed")[:200] for n in range(count)}
    second = {passage("code", n, 36_000, "seed")[:200] for n in range(count, 2 * count)}

    assert len(first) == count
    assert len(first & second) < 5


def test_the_order_of_passages_is_that_of_the_seed() -> None:
    assert passage("random_text", 0, 900, "a") != passage("random_text", 0, 900, "b")
    assert passage("repetitive", 0, 900, "a") != passage("repetitive", 1, 900, "a")
    assert passage("random_text", 3, 900, "a") == passage("random_text", 3, 900, "a")


def test_texts_are_those_of_every_machine_and_hash_seed() -> None:
    code = (
        "import json; from actors.workloads.prompt_text import *; "
        "print(json.dumps([text_of('random_text', 60, 'a'), text_of('code', 60, 'a'), text_of('repetitive', 60, 'a'), "
        "passage('random_text', 7, 60, 'a')]))"
    )
    run = [sys.executable, "-c", code]
    said = subprocess.run(run, check=True, capture_output=True, text=True, cwd=ROOT, env={"PYTHONHASHSEED": "7"})

    assert json.loads(said.stdout) == [
        "This macro sets the maximum depth of the LALR(1) stack used",
        '    def empty(self):\n        """Check whether the queue is',
        "2025-03-14 18:25:44 INFO worker=3 job=45656 step=process",
        '"I do not know," replied Miss Crawford hesitatingly. "Yes, I',
    ]

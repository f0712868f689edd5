"""Where a stop condition ends an answer, and what a prefix cache of pairs finds."""

from __future__ import annotations

from actors.emulator.radix import RadixCache
from actors.emulator.words import first_stop_id, first_stop_text, output_ids, output_text

SEED = 17


def test_the_first_of_several_stop_tokens_ends_an_answer() -> None:
    ids = output_ids(SEED, 0, 50)
    wanted = {ids[9], ids[4]}
    assert first_stop_id(SEED, wanted, 50) == min(ids.index(token) for token in wanted) + 1
    assert first_stop_id(SEED, {-1}, 50) is None


def test_a_stop_text_may_cross_tokens_and_ends_with_the_token_that_completes_it() -> None:
    text, first = output_text(SEED, 0, 20), output_text(SEED, 0, 1)
    across = text[len(first) - 1 : len(first) + 2]
    assert first_stop_text(SEED, [across], 20) == (2, across, text.index(across))
    assert first_stop_text(SEED, ["no such text"], 20) is None


def test_of_two_stop_texts_the_one_that_is_complete_first_counts() -> None:
    text = output_text(SEED, 0, 20)
    early, late = text[1:4], text[1:30]
    found = first_stop_text(SEED, [late, early], 20)
    assert found is not None
    assert found[1:] == (early, 1)


def test_a_cache_of_pairs_finds_one_token_less() -> None:
    single, pairs = RadixCache(100), RadixCache(100, bigrams=True)
    for cache in (single, pairs):
        cache.insert(range(10))
    assert [cache.match(range(10)) for cache in (single, pairs)] == [9, 8]
    assert [cache.match([0, 1, 2, 50]) for cache in (single, pairs)] == [3, 2]
    assert [cache.match([0, 50]) for cache in (single, pairs)] == [1, 0]
    assert [cache.match([50]) for cache in (single, pairs)] == [0, 0]

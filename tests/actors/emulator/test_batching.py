"""Admission, prefill chunks, acceptance, retraction and the prefix cache of one scheduler."""

from __future__ import annotations

from dataclasses import replace

from actors.emulator.batching import Batch, BatchLimits, Request, Step
from actors.emulator.profiles import GENERIC
from actors.emulator.radix import RadixCache

LIMITS = BatchLimits(max_running=2, kv_tokens=10_000, chunk_tokens=100, captured_batch=2)


def request(name: str, prompt: int = 10, output: int = 8) -> Request:
    return Request(name, tuple(hash((name, i)) % 1000 for i in range(prompt)), output)


def run(batch: Batch, steps: int) -> list[Step]:
    taken, now = [], 0.0
    for _ in range(steps):
        step = batch.next_step()
        if step is None:
            break
        now += step.seconds
        batch.finish_step(step, now)
        taken.append(step)
    return taken


def test_no_more_requests_run_than_the_limit() -> None:
    batch = Batch(GENERIC.speed, LIMITS)
    for name in "abc":
        batch.submit(request(name))
    run(batch, 1)
    assert [r.rid for r in batch.running] == ["a", "b"]
    assert [r.rid for r in batch.waiting] == ["c"]


def test_prefill_comes_before_decode_and_gives_the_first_token() -> None:
    batch = Batch(GENERIC.speed, LIMITS)
    batch.submit(request("a", output=3))
    steps = run(batch, 10)
    assert [step.kind for step in steps] == ["prefill", "decode", "decode"]


def test_a_long_prompt_is_computed_in_chunks() -> None:
    batch = Batch(GENERIC.speed, LIMITS)
    batch.submit(request("a", prompt=250, output=1))
    assert [step.shares for step in run(batch, 10)] == [(100,), (100,), (50,)]


def test_every_verify_gives_one_token_and_the_accepted_drafts() -> None:
    batch = Batch(GENERIC.speed, replace(LIMITS, num_steps=3, draft_tokens=4))
    asked = request("a", output=200)
    batch.submit(asked)
    run(batch, 500)
    assert asked.generated == 200
    assert sum(asked.histogram) == asked.verifies
    assert sum(k * count for k, count in enumerate(asked.histogram)) == asked.accepted
    assert 1 + asked.verifies + asked.accepted >= 200
    assert abs(1 + asked.accepted / asked.verifies - 2.9) < 0.06


def test_a_full_pool_retracts_the_request_with_the_least_output_and_computes_it_again() -> None:
    batch = Batch(GENERIC.speed, replace(LIMITS, kv_tokens=135, radix_cache=False))
    first, second = request("a", 20, 80), request("b", 20, 80)
    batch.submit(first)
    run(batch, 3)
    batch.ratio = 0.1
    batch.submit(second)
    run(batch, 400)
    assert (first.retractions, second.retractions) == (0, 1)
    assert (first.generated, second.generated) == (80, 80)


def test_a_request_that_enters_is_charged_all_it_may_generate() -> None:
    batch = Batch(GENERIC.speed, replace(LIMITS, max_running=8, kv_tokens=300))
    for name in "abc":
        batch.submit(request(name, prompt=10, output=100))
    run(batch, 1)
    assert [r.rid for r in batch.running] == ["a", "b"]


def test_what_runs_is_charged_a_share_unless_its_length_is_fixed() -> None:
    for fixed, entered in ((False, ["a", "b"]), (True, ["a"])):
        batch = Batch(GENERIC.speed, replace(LIMITS, max_running=8, kv_tokens=200))
        batch.submit(Request("a", tuple(range(10)), 100, fixed_length=fixed))
        run(batch, 2)
        batch.submit(request("b", prompt=10, output=90))
        run(batch, 1)
        assert [r.rid for r in batch.running] == entered


def test_after_one_that_did_not_fit_none_enters_before_a_running_one_ends() -> None:
    batch = Batch(GENERIC.speed, replace(LIMITS, max_running=8, kv_tokens=300))
    batch.submit(request("a", prompt=10, output=60))
    batch.submit(request("b", prompt=10, output=100))
    batch.submit(request("c", prompt=10, output=150))
    run(batch, 2)
    batch.submit(request("d", prompt=10, output=1))
    run(batch, 30)
    assert [r.rid for r in batch.running] == ["a", "b"]
    run(batch, 40)
    assert [r.rid for r in batch.running] == ["b", "c"]
    assert not batch.waiting


def test_the_next_request_of_the_same_prompt_finds_all_but_one_token_cached() -> None:
    batch = Batch(GENERIC.speed, LIMITS)
    again = request("a")
    batch.submit(request("a"))
    run(batch, 20)
    batch.submit(again)
    run(batch, 20)
    assert again.cached == 9


def test_an_aborted_request_leaves_the_batch_and_gets_nothing_more() -> None:
    batch = Batch(GENERIC.speed, LIMITS)
    asked = request("a")
    batch.submit(asked)
    run(batch, 2)
    step = batch.next_step()
    assert step is not None
    batch.abort(asked, "gone")
    assert batch.finish_step(step, 1.0) == []
    assert asked.generated == 2
    assert not batch.busy


def test_the_prefix_cache_finds_shared_beginnings_only() -> None:
    cache = RadixCache(1000)
    cache.insert((1, 2, 3, 4, 5))
    cache.insert((1, 2, 9, 9))
    assert cache.match((1, 2, 3, 7)) == 3
    assert cache.match((1, 2, 9, 9, 9)) == 4
    assert cache.match((2, 3, 4)) == 0
    assert cache.tokens == 7


def test_the_prefix_cache_forgets_what_was_not_used_for_longest() -> None:
    cache = RadixCache(10)
    cache.insert((1, 1, 1, 1, 1))
    cache.insert((2, 2, 2, 2, 2))
    cache.match((1, 1, 1, 1, 1, 0))
    cache.insert((3, 3, 3, 3, 3))
    assert cache.match((1, 1, 1, 1, 1, 0)) == 5
    assert cache.match((2, 2, 2, 2, 2, 0)) == 0

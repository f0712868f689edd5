"""The single changes that a repair may consist of: one setting, in one direction, by numbers where there are. Pure.

A step returns None where it has nothing to change: at its bound, without the right to, or where it could not help.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from actors.diagnosis.memory_figures import size_in_words
from orchestrator.outcome import Label
from orchestrator.recoveries.failed_lineage import Change, Situation

# Bounds of every fraction, and steps where no number tells how much.
LEAST_FRACTION, MOST_FRACTION = 0.10, 0.97
RAISE_STEP = 0.05
RAISE_ABOVE_LEAST = 0.03
LOWER_STEP = {Label.OOM_KV_ALLOC: 0.02, Label.RUNTIME_OOM: 0.03}
LOWER_STEP_OF_GRAPHS = 0.05
OPEN_CHUNK_TOKENS, LEAST_CHUNK_TOKENS = 8192, 512
# Every served model of today has at least this context; a longer one than the model's own would be refused.
LEAST_CONTEXT_TOKENS = 2048
# States of a request: three with the prefix cache, up to two more with extra buffers.
MOST_STATE_SLOTS = 5
# A pool of this many GiB that still held no token was taken by caches that grow with running requests.
POOL_WAS_THERE_GIB = 2.0

Step = Callable[[Situation], Change | None]


def lower_fraction(now: Situation) -> Change | None:
    """`mem_fraction_static` down by what was short and a margin, else by a fixed step."""
    fraction, low = now.fraction, now.too_small
    if not now.may("mem_fraction_static") or now.is_squeezed:
        return None
    short, of = now.failed.short_gib, now.failed.share_of_gib
    if short is not None and of:
        step = (short + now.margin_gib) / of
        why = f"{size_in_words(short)} short and {now.margin_gib:.2f} GiB margin of {of:.2f} GiB"
        step, why = _no_less_than(now.last_step, step, why)
    else:
        step = LOWER_STEP.get(now.failed.label, LOWER_STEP_OF_GRAPHS)
        why = f"a step of {step:g}: no number tells how much was short"
        step, why = _no_less_than(2 * now.last_step, step, why)
    target = math.floor((min(fraction, now.too_large or fraction) - step) * 100 + 1e-6) / 100
    if low is not None and target <= low:
        target, why = (
            math.floor((low + fraction) * 50 + 1e-6) / 100,
            f"half way to {low:g}, where the KV cache had no room",
        )
    target = round(max(LEAST_FRACTION, target), 2)
    if target >= fraction or (low is not None and target <= low):
        return None
    return Change("mem_fraction_static", now.settings.get("mem_fraction_static"), target, why)


def raise_fraction(now: Situation) -> Change | None:
    """`mem_fraction_static` up: above SGLang's own minimum where it tells it, else by a fixed step."""
    fraction, high = now.fraction, now.too_large
    if not now.may("mem_fraction_static") or now.is_squeezed:
        return None
    least = now.failed.least_fraction
    if least is not None:
        target = max(math.ceil((least + RAISE_ABOVE_LEAST) * 100 - 1e-6) / 100, fraction + 0.01)
        why = f"SGLang says that at least {least:g} is needed, and {RAISE_ABOVE_LEAST:g} of it holds tokens"
    else:
        step, why = RAISE_STEP, f"a step of {RAISE_STEP:g}: no number tells how much was short"
        step, why = _no_less_than(2 * now.last_step, step, why)
        target = max(fraction, now.too_small or fraction) + step
    if high is not None and target >= high:
        target, why = (
            math.ceil((fraction + high) * 50 - 1e-6) / 100,
            f"half way to {high:g}, where the rest had no room",
        )
    target = round(min(MOST_FRACTION, max(LEAST_FRACTION, target)), 2)
    if target <= fraction or (high is not None and target >= high):
        return None
    return Change("mem_fraction_static", now.settings.get("mem_fraction_static"), target, why)


def _no_less_than(least: float, step: float, why: str) -> tuple[float, str]:
    """A step that was too short is not made smaller: a death shows the first allocation that failed, not the rest."""
    return (step, why) if least <= step else (least, f"a step of {least:.2f}, since the last one was not enough")


def raise_to_where_graphs_failed(now: Situation) -> Change | None:
    """`mem_fraction_static` up to the one that left too little for graphs, where the weights need that much."""
    high, asked = now.too_large, now.settings.get("mem_fraction_static")
    if not now.may("mem_fraction_static") or not now.is_squeezed or now.failed.least_fraction is None or high is None:
        return None
    target = round(max(high, math.ceil(now.failed.least_fraction * 100 + 1e-6) / 100), 2)
    if target <= now.fraction or not LEAST_FRACTION <= target <= MOST_FRACTION:
        return None
    return Change("mem_fraction_static", asked, target, f"SGLang says that {now.failed.least_fraction:g} is needed")


def fewer_requests(now: Situation) -> Change | None:
    """`max_running_requests` halved, then quartered, but enough for every load level."""
    return _fewer_requests(now, now.needs.running, "")


def fewer_requests_than_offered(now: Situation) -> Change | None:
    """`max_running_requests` halved, below what the load offers: the rest waits in the server's queue."""
    return _fewer_requests(now, 1, f", below the {now.needs.running} that the load offers: the rest waits")


def fewer_requests_for_the_pool(now: Situation) -> Change | None:
    """`max_running_requests` halved before the fraction is touched: the pool was there, caches per request took it."""
    pool = now.failed.pool_gib
    if pool is None or pool < POOL_WAS_THERE_GIB or now.failed.least_fraction is not None:
        return None
    return _fewer_requests(
        now, now.needs.running, f": {pool:.2f} GiB for pools were there, and caches per request took all"
    )


def _fewer_requests(now: Situation, least: int, why: str) -> Change | None:
    running = now.running
    if not now.may("max_running_requests") or running is None or now.failed.least_fraction is not None:
        return None  # where the weights alone take the whole fraction, requests do not matter
    part = 4 if now.halved_in_vain else 2
    target = max(least, running // part)
    if target >= running or target < 1:
        return None
    share = "a quarter" if part == 4 else "half"
    told = f"{share} of {running}" if target == running // part else "as many as the load offers"
    return Change("max_running_requests", running, target, f"{told}{why}")


def cap_capture(now: Situation) -> Change | None:
    """`cuda_graph_max_bs_decode`: graphs only for batches that the load can make."""
    return _capture(now, now.needs.running, f"the load runs at most {now.needs.running} requests at once")


def shrink_capture(now: Situation) -> Change | None:
    """`cuda_graph_max_bs_decode` down to what fits by the log, else halved; larger batches run without a graph."""
    batch = _captured(now)
    if batch is None:
        return None
    captures = [failed for failed in (now.failed, *(t.failed for t in reversed(now.tries))) if failed.scratch_gib]
    begin = captures[0].graph_begin_gib if captures else None
    scratch = captures[0].scratch_gib if captures else None
    if begin is not None and scratch:
        fits = math.floor(batch * max(0.0, begin - now.margin_gib) / scratch)
        why = f"{scratch:.2f} GiB of scratch for batch {batch}, {begin:.2f} GiB free when the capture began"
        if 1 <= fits < batch:
            return _capture(now, fits, why)
    return _capture(now, batch // 2, f"half of {batch}")


def _captured(now: Situation) -> int | None:
    """The largest batch with a graph; None where there are none, or the size is given as a whole config."""
    settings = now.settings
    off = settings.get("disable_cuda_graph") or settings.get("disable_decode_cuda_graph")
    if off or settings.get("cuda_graph_backend_decode") == "disabled" or settings.get("cuda_graph_config"):
        return None
    listed = settings.get("cuda_graph_bs_decode")
    if listed:
        return max(int(n) for n in listed)
    told = settings.get("cuda_graph_max_bs_decode") or now.failed.captured_batch
    running = now.running
    return min(int(n) for n in (told, running) if n is not None) if told or running else None


def _capture(now: Situation, most: int, why: str) -> Change | None:
    batch = _captured(now)
    if not now.may("cuda_graph_max_bs_decode") or batch is None or most >= batch or most < 1:
        return None
    listed = now.settings.get("cuda_graph_bs_decode")
    if listed:
        kept = [n for n in listed if n <= most] or [most]
        return Change("cuda_graph_bs_decode", list(listed), kept, why)
    return Change("cuda_graph_max_bs_decode", now.settings.get("cuda_graph_max_bs_decode"), most, why)


def shorter_context(now: Situation) -> Change | None:
    """`context_length` down to what the longest request needs; never below."""
    asked = now.settings.get("context_length")
    if not now.may("context_length") or now.needs.tokens is None or now.failed.least_fraction is not None:
        return None
    target = now.needs.tokens if asked is not None else max(LEAST_CONTEXT_TOKENS, now.needs.tokens)
    if asked is not None and target >= asked:
        return None
    return Change(
        "context_length", asked, target, f"the longest request has {now.needs.tokens} tokens with all reserves"
    )


def cap_tokens(now: Situation) -> Change | None:
    """`max_total_tokens` down to what the load can hold at once."""
    asked, needs = now.settings.get("max_total_tokens"), now.needs
    if not now.may("max_total_tokens") or needs.tokens is None:
        return None
    target = needs.running * needs.tokens
    if asked is not None and target >= asked:
        return None
    return Change("max_total_tokens", asked, target, f"{needs.running} requests of {needs.tokens} tokens")


def smaller_chunk(now: Situation) -> Change | None:
    """`chunked_prefill_size` halved."""
    asked = now.settings.get("chunked_prefill_size")
    size = int(now.effective("chunked_prefill_size", OPEN_CHUNK_TOKENS))
    size = size if size > 0 else 2 * OPEN_CHUNK_TOKENS  # -1: prompts are not cut
    target = max(LEAST_CHUNK_TOKENS, size // 2)
    if not now.may("chunked_prefill_size") or target >= size:
        return None
    return Change("chunked_prefill_size", asked, target, f"half of {size}")


def raise_fraction_for_states(now: Situation) -> Change | None:
    """`mem_fraction_static` up by what the load's states lack, where it leaves less than those of one request."""
    rest, each, of = now.failed.state_rest_gib, now.failed.state_each_gib, now.failed.share_of_gib
    if not now.may("mem_fraction_static") or rest is None or each is None or rest >= each:
        return None
    # Of what is left SGLang gives states about as much as the KV cache (mamba_full_memory_ratio 0.9).
    wanted = 2 * now.needs.running * each
    step = RAISE_STEP if not of else (wanted - rest + now.margin_gib) / of
    target = min(MOST_FRACTION, math.ceil((now.fraction + step) * 100 - 1e-6) / 100)
    if target <= now.fraction or (now.too_large is not None and target >= now.too_large):
        return None
    why = f"{rest:.2f} GiB were left, {wanted:.2f} GiB for states and KV cache of {now.needs.running} requests"
    return Change("mem_fraction_static", now.settings.get("mem_fraction_static"), target, why)


def smaller_state_cache(now: Situation) -> Change | None:
    """`max_mamba_cache_size` down to the states of the requests that the load runs, where states took too much."""
    asked = now.settings.get("max_mamba_cache_size")
    target = now.needs.running * MOST_STATE_SLOTS
    says_small = "too small to serve" in now.failed.evidence or "SWA pool" in now.failed.evidence
    if not now.may("max_mamba_cache_size") or says_small or (asked is not None and target >= asked):
        return None
    return Change(
        "max_mamba_cache_size", asked, target, f"{MOST_STATE_SLOTS} states for each of {now.needs.running} requests"
    )


def larger_state_share(now: Situation) -> Change | None:
    """`mamba_full_memory_ratio` doubled, where the state cache was too small."""
    runs_out = now.failed.label is Label.RUNTIME_POOL and now.failed.has_states
    pools = runs_out or "too small to serve" in now.failed.evidence
    ratio = float(now.effective("mamba_full_memory_ratio", 0.9))
    target = round(min(4.0, 2 * ratio), 2)
    if not now.may("mamba_full_memory_ratio") or not pools or target <= ratio:
        return None
    return Change("mamba_full_memory_ratio", now.settings.get("mamba_full_memory_ratio"), target, f"twice {ratio:g}")


def other_window_share(now: Situation) -> Change | None:
    """`swa_full_tokens_ratio` doubled where the window pool was too small, halved where it left no room."""
    evidence, asked = now.failed.evidence, now.settings.get("swa_full_tokens_ratio")
    if not now.may("swa_full_tokens_ratio") or "SWA pool" not in evidence:
        return None
    ratio = float(now.effective("swa_full_tokens_ratio", 0.8))
    small = "cannot hold even one request" in evidence
    target = round(min(1.0, 2 * ratio) if small else max(0.05, ratio / 2), 3)
    if target == ratio or (target > ratio) is not small:
        return None
    return Change("swa_full_tokens_ratio", asked, target, f"{'twice' if small else 'half of'} {ratio:g}")

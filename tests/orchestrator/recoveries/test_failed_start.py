"""The numbers that a dead server's evidence, phases and log give."""

from __future__ import annotations

import pytest

from orchestrator.outcome import Diagnosis, Label, Phase, PhaseFact
from orchestrator.recoveries.failed_start import FailedStart, read_failed_start

GRAPH_OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.50 GiB. GPU 1 has a total capacity of 94.97 GiB "
    "of which 2.30 GiB is free. Including non-PyTorch memory, this process has 92.67 GiB memory in use."
)
LOG = """\
[2026-11-29 10:00:00] server_args={'model_path': 'm', 'mem_fraction_static': 0.7, 'chunked_prefill_size': 8192}
[2026-11-29 10:00:04 TP0] Load weight begin. avail mem=94.10 GB
[2026-11-29 10:00:04 TP1] Load weight begin. avail mem=93.80 GB
[2026-11-29 10:00:29 TP0] Load weight end. elapsed=24.00 s, type=M, avail mem=58.10 GB, mem usage=36.00 GB.
[2026-11-29 10:00:29 TP0] Load weight begin. avail mem=58.10 GB
[2026-11-29 10:00:40 TP0] Capture target verify CUDA graph begin. backend=full, num_tokens_per_req=2, avail mem=16.86 GB
Capturing batches (bs=256 avail_mem=16.86 GB):   0%|          | 0/43 [00:00<?, ?it/s]
[2026-11-29 10:00:50 TP0] Capture target verify CUDA graph end. elapsed=5 s, mem usage=1.00 GB, avail mem=15.86 GB.
[2026-11-29 10:00:51 TP0] Capture draft extend CUDA graph begin. backend=full, bs=[1, 256], avail mem=15.86 GB
\rCapturing batches (bs=256 avail_mem=15.86 GB):   0%|          | 0/43 [00:00<?, ?it/s]
"""
PHASES = (
    PhaseFact(Phase.DIST_INIT, 1.0, 4.0, 93.8),
    PhaseFact(Phase.WEIGHTS, 4.0, 29.0, 58.1),
    PhaseFact(Phase.DRAFT_WEIGHTS, 29.0, 38.0, 56.61),
    PhaseFact(Phase.KV_POOL, 38.0, 39.0, 16.9),
)


def test_a_death_in_graph_capture_gives_what_was_short_and_what_the_capture_wanted() -> None:
    died = Diagnosis(Label.OOM_GRAPH_DRAFT, Phase.GRAPH_DRAFT, GRAPH_OOM)
    read = read_failed_start(died, PHASES, {}, log=LOG)

    assert (read.total_gib, read.wanted_gib, read.free_gib) == (94.97, 7.5, 2.3)
    assert read.short_gib == pytest.approx(5.2)
    assert (read.before_load_gib, read.loaded_gib, read.graph_begin_gib) == (93.8, 56.61, 15.86)
    assert (read.captured_batch, read.fraction) == (256, 0.7)
    assert read.scratch_gib == pytest.approx(15.86 - 2.3 + 7.5)
    assert read.pool_gib == pytest.approx(56.61 - 93.8 * 0.3)
    assert read.resolved == {"mem_fraction_static": 0.7, "chunked_prefill_size": 8192}
    assert read.has_states is False


def test_what_was_asked_and_what_a_server_that_was_ready_says_count_more_than_its_log() -> None:
    died = Diagnosis(Label.RUNTIME_OOM, Phase.SERVING, "torch.OutOfMemoryError: CUDA out of memory.")
    account = {"mem_fraction_static": 0.65, "chunked_prefill_size": 4096}

    assert read_failed_start(died, (), {}, log=LOG, account=account).fraction == 0.65
    assert read_failed_start(died, (), {"mem_fraction_static": 0.6}, log=LOG, account=account).fraction == 0.6
    assert (read_failed_start(died, (), {}, account=account).resolved or {})["chunked_prefill_size"] == 4096


def test_the_minimum_that_sglang_suggests_and_the_fraction_in_effect_are_read_from_its_message() -> None:
    said = (
        "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.3. Raise "
        "--mem-fraction-static above 0.396 (minimum viable = 1 - available/pre = 0.3950). If using speculative "
        "decoding, draft weights are now counted."
    )
    read = read_failed_start(Diagnosis(Label.KV_BUDGET, Phase.KV_POOL, said), (), {})

    assert (read.least_fraction, read.fraction) == (0.395, 0.3)


def test_a_dataclass_as_older_releases_log_it_and_sizes_in_mib_are_read_too() -> None:
    said = "Tried to allocate 640.00 MiB. GPU 0 has a total capacity of 23.50 GiB of which 128.00 MiB is free."
    log = "server_args=ServerArgs(model_path='m', mem_fraction_static=0.858, swa_full_tokens_ratio=0.8)\n"
    read = read_failed_start(Diagnosis(Label.RUNTIME_OOM, Phase.SERVING, said), (), {}, log=log)

    assert (read.wanted_gib, read.free_gib, read.short_gib) == (0.625, 0.125, 0.5)
    assert read.resolved == {"mem_fraction_static": 0.858, "swa_full_tokens_ratio": 0.8}


def test_where_nothing_tells_a_number_there_is_none() -> None:
    read = read_failed_start(Diagnosis(Label.KV_BUDGET, Phase.KV_POOL, "the line that shows it"), (), {})

    assert read == FailedStart(Label.KV_BUDGET, Phase.KV_POOL, "the line that shows it")
    assert (read.short_gib, read.scratch_gib, read.pool_gib, read.share_of_gib) == (None, None, None, None)


def test_it_comes_back_from_the_journal_as_it_went_in() -> None:
    died = Diagnosis(Label.OOM_GRAPH_DRAFT, Phase.GRAPH_DRAFT, GRAPH_OOM)
    read = read_failed_start(died, PHASES, {}, log=LOG + "Mamba Cache is allocated. max_mamba_cache_size: 12")

    assert FailedStart.from_json(read.as_json()) == read
    assert read.has_states is True

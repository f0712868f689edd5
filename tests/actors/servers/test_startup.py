"""Timelines of real start-up logs, and of lines in the spellings of several SGLang releases."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from actors.servers.follower import split_log
from actors.servers.log_line import LogLine, clean
from actors.servers.startup import StartupTimeline
from orchestrator.outcome import Phase, PhaseFact
from orchestrator.server_start import StartProgress

LOGS = Path(__file__).parent.parent.parent / "data" / "logs"


def read(name: str) -> StartupTimeline:
    """The timeline of a stored log; the seconds are those of its own stamps."""
    timeline = StartupTimeline()
    began: datetime | None = None
    at_s = 0.0
    for segment in split_log((LOGS / f"{name}.log").read_bytes()):
        stamp = clean(segment.text).stamp
        if len(stamp) == 19:
            began = began or datetime.fromisoformat(stamp)
            at_s = (datetime.fromisoformat(stamp) - began).total_seconds()
        timeline.advance(segment.text, at_s, is_bar=segment.is_bar)
        if timeline.is_ready:
            break
    return timeline


def fold(*lines: str) -> StartupTimeline:
    """The timeline of lines that come one second apart; those with a count in them are bars."""
    timeline = StartupTimeline()
    for second, line in enumerate(lines, start=1):
        timeline.advance(line, float(second), is_bar="it/s]" in line)
    return timeline


def test_a_start_with_a_draft_model() -> None:
    timeline = read("capture-0.5.23-spec-standalone3")
    assert timeline.phases == (
        PhaseFact(Phase.LAUNCH, 0.0, 0.0),
        PhaseFact(Phase.ARGS, 0.0, 18.0),
        PhaseFact(Phase.SPAWN, 18.0, 190.0),
        PhaseFact(Phase.DIST_INIT, 190.0, 197.0, 17.63),
        PhaseFact(Phase.WEIGHTS, 197.0, 197.0, 17.61),
        PhaseFact(Phase.DRAFT_WEIGHTS, 198.0, 198.0, 17.6),
        PhaseFact(Phase.KV_POOL, 198.0, 201.0, 17.48, "4096 tokens"),
        PhaseFact(Phase.HTTP_BIND, 201.0, 201.0, 17.48, "4096 tokens, 4 running requests"),
        PhaseFact(Phase.WARMUP, 201.0, 285.0),
        PhaseFact(Phase.READY, 285.0),
    )
    assert (timeline.kv_tokens, timeline.max_running_requests, timeline.context_length) == (4096, 4, 4096)


def test_free_memory_is_that_after_both_pools() -> None:
    facts = {fact.phase: fact for fact in read("capture-0.5.23-spec-eagle2").phases}
    assert facts[Phase.KV_POOL] == PhaseFact(Phase.KV_POOL, 132.0, 134.0, 2.42, "4096 tokens")
    assert facts[Phase.HTTP_BIND].free_gib == 1.68


@pytest.mark.parametrize(
    ("name", "ready_s", "running"), [("capture-0.5.23-base", 194.0, 8), ("capture-0.5.6.post2-base", 24.0, 4)]
)
def test_a_start_without_speculation_in_two_releases(name: str, ready_s: float, running: int) -> None:
    timeline = read(name)
    assert [fact.phase for fact in timeline.phases] == [
        *(Phase.LAUNCH, Phase.ARGS, Phase.SPAWN, Phase.DIST_INIT, Phase.WEIGHTS, Phase.KV_POOL),
        *(Phase.HTTP_BIND, Phase.WARMUP, Phase.READY),
    ]
    assert (timeline.phases[-1].began_s, timeline.max_running_requests) == (ready_s, running)


def test_the_fullest_rank_tells_the_free_memory_and_the_last_one_the_end() -> None:
    timeline = fold(
        "[2026-08-07 17:35:59 TP1] Load weight begin. avail mem=90.00 GB",
        "[2026-08-07 17:35:59 TP0] Load weight begin. avail mem=90.00 GB",
        "[2026-08-07 17:35:59 TP1] Load weight end. type=M, avail mem=30.00 GB, mem usage=60.00 GB.",
        "[2026-08-07 17:35:59 TP1] Memory pool end. avail mem=5.00 GB",
        "[2026-08-07 17:35:59 TP0] Load weight end. type=M, avail mem=29.50 GB, mem usage=60.50 GB.",
        "[2026-08-07 17:35:59 TP0] Memory pool end. avail mem=5.25 GB",
    )
    assert timeline.phases[2:] == (
        PhaseFact(Phase.WEIGHTS, 1.0, 5.0, 29.5),
        PhaseFact(Phase.KV_POOL, 3.0, 6.0, 5.0),
    )


def test_a_second_load_of_the_same_rank_is_the_drafts() -> None:
    timeline = fold(
        "[2026-08-07 17:35:59] Load weight begin. avail mem=90.00 GB",
        "[2026-08-07 17:35:59] Load weight end. type=M, avail mem=30.00 GB, mem usage=60.00 GB.",
        "[2026-08-07 17:35:59] Using draft model load_format: 'auto'",
        "[2026-08-07 17:35:59] Load weight begin. avail mem=30.00 GB",
    )
    assert timeline.phase is Phase.DRAFT_WEIGHTS
    assert [fact.phase for fact in timeline.phases] == [Phase.LAUNCH, Phase.ARGS, Phase.WEIGHTS, Phase.DRAFT_WEIGHTS]
    assert timeline.phase_of("") is Phase.DRAFT_WEIGHTS


def test_each_rank_has_its_own_phase() -> None:
    timeline = fold(
        "[2026-08-07 17:35:59 TP0] Load weight begin. avail mem=90.00 GB",
        "[2026-08-07 17:35:59 TP1] Load weight begin. avail mem=90.00 GB",
        "[2026-08-07 17:35:59 TP1] Load weight end. type=M, avail mem=30.00 GB, mem usage=60.00 GB.",
    )
    assert (timeline.phase_of("TP0"), timeline.phase_of("TP1")) == (Phase.WEIGHTS, Phase.KV_POOL)


@pytest.mark.parametrize(
    ("begin", "phase", "detail"),
    [
        ("Capture cuda graph begin. This can take up to several minutes. avail mem=8.00 GB", "graph_target", "decode"),
        ("Capture draft cuda graph begin. This can take up to several minutes.", "graph_draft", "draft"),
        ("Capture draft extend cuda graph begin (step 2).", "graph_draft", "draft extend"),
        ("Capture piecewise CUDA graph begin. avail mem=8.00 GB", "graph_target", "piecewise"),
        (
            "Capture target verify CUDA graph begin. backend=full, num_tokens_per_req=6, avail mem=8.00 GB",
            "graph_target",
            "target verify",
        ),
        ("Capture target decode NPU graph begin. backend=full, avail mem=8.00 GB", "graph_target", "target decode"),
        ("Capture draft decode CUDA graph begin. backend=full, avail mem=8.00 GB", "graph_draft", "draft decode"),
        ("Capture Frozen-KV MTP draft cuda graph begin.", "graph_draft", "Frozen-KV MTP draft"),
    ],
)
def test_graph_captures_in_every_spelling(begin: str, phase: str, detail: str) -> None:
    timeline = fold(f"[2026-08-07 17:35:59 TP0] {begin}")
    assert (timeline.phase, timeline.phases[-1].detail) == (phase, detail)


@pytest.mark.parametrize(
    ("end", "free"),
    [
        ("Capture cuda graph end. Time elapsed: 6.57 s", None),
        ("Capture cuda graph end. Time elapsed: 7.23 s. avail mem=0.53 GB. mem usage=0.93 GB.", 0.53),
        ("Capture cuda graph end. Time elapsed: 5.37 s. mem usage=1.44 GB. avail mem=38.05 GB.", 38.05),
        (
            "Capture target verify CUDA graph end. bs=[2, 1], elapsed=0.78 s, mem usage=0.12 GB, avail mem=0.51 GB.",
            0.51,
        ),
    ],
)
def test_the_memory_after_a_capture_in_every_spelling(end: str, free: float | None) -> None:
    assert fold(f"[2026-08-07 17:35:59 TP0] {end}").phases[-1] == PhaseFact(
        Phase.GRAPH_TARGET, 1.0, 1.0, free, "target verify" if "verify" in end else "decode"
    )


def test_a_bar_tells_how_many_graphs_are_captured() -> None:
    timeline = fold(
        "[2026-08-07 17:35:59] Capture target verify CUDA graph begin. backend=full, avail mem=26.00 GB",
        "Capturing batches (bs=10 avail_mem=25.39 GB): 25%|##5       | 3/12 [00:13<00:33, 3.70s/it/s]",
    )
    assert timeline.progress("t", 15.0) == StartProgress("t", Phase.GRAPH_TARGET, 15.0, 3, 12, 25.39)
    assert (
        timeline.advance("Capturing batches (bs=10 avail_mem=25.39 GB): 25%|##5 | 3/12 [00:14<", 3.0, is_bar=True)
        is False
    )
    assert (
        timeline.advance("[2026-08-07 17:36:59] Capture draft decode CUDA graph begin. avail mem=20.00 GB", 4.0) is True
    )
    assert timeline.progress("t", 16.0) == StartProgress("t", Phase.GRAPH_DRAFT, 16.0, None, None, 20.0)


def test_after_the_ready_words_the_server_serves_until_it_shuts_down() -> None:
    lines = (
        "[2026-08-07 17:35:59] The server is fired up and ready to roll!",
        "[2026-08-07 17:36:00] Prefill batch, #new-seq: 1",
        "[2026-08-07 17:36:00] SIGTERM received. signum=None frame=None. Draining requests",
    )
    assert [fold(*lines[:count]).phase for count in (1, 2, 3)] == [Phase.READY, Phase.SERVING, Phase.SHUTDOWN]
    assert fold(*lines).is_ready


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "sglang-1  | ",
        "2025-07-25T07:53:08.217487+08:00 stdout F ",
        "2026-09-22T08:10:24.183700518Z ",
        "ERROR 2025-04-05T00:01:19.509514570Z ",
        "(SGLangEngine pid=4711, ip=10.0.0.1) ",
        "\x1b[36m(SGLangEngine pid=4711)\x1b[0m ",
        "[31m",
        "Sep 14 20:13:56 host-a sglang[77]: ",
        "    ",
        "> ",
        "3: ",
        "sglang-1  |     ",
    ],
)
def test_what_others_put_before_a_line_is_taken_off(prefix: str) -> None:
    line = clean(f"{prefix}[2026-08-07 17:35:59 DP0 TP1] Load weight begin")
    assert line == LogLine("Load weight begin", "2026-08-07 17:35:59", "DP0 TP1")


def test_lines_without_the_servers_own_prefix_are_left_as_they_are() -> None:
    assert clean("[http_server] Error: x") == LogLine("[http_server] Error: x")
    assert clean("[01:33:10] Memory pool end") == LogLine("Memory pool end", "01:33:10")
    assert clean("[rank0]: RuntimeError: y [repeated 2x across cluster]") == LogLine("RuntimeError: y")
    assert clean("25%|##   | 3/12 [00:13<00:33]") == LogLine("25%|##   | 3/12 [00:13<00:33]")


def test_a_real_rank_that_serves_no_requests_is_ready_once_its_schedulers_are_up() -> None:
    log = Path(__file__).parents[2] / "data/captures/0.5.23-two-nodes/scheduler-of-node-1-killed-1.log"
    timeline = StartupTimeline()
    for line in log.read_text(encoding="utf-8").partition("Scheduler or DataParallelController")[0].splitlines()[:-1]:
        timeline.advance(line, 1.0)

    assert (timeline.is_ready, timeline.phase, timeline.kv_tokens) == (True, Phase.READY, 4096)
    assert [fact.phase for fact in timeline.phases][-4:] == [Phase.DIST_INIT, Phase.WEIGHTS, Phase.KV_POOL, Phase.READY]

"""The log of a start, line by line and in order, against the formats that log readers rely on."""

from __future__ import annotations

import re
from pathlib import Path

from actors.emulator.log import progress_bar
from tests.actors.emulator.planning import DEEPSEEK, QWEN, chain
from tests.actors.emulator.running import READY, emulator

PREFIX = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?P<rank>(?: TP\d+)*)\] (?P<msg>.*)$")
NUMBER = r"\d+\.\d+"
LOAD_BEGIN = rf"Load weight begin\. avail mem={NUMBER} GB$"
LOAD_END = rf"Load weight end\. elapsed=[\d.]+ s, type=\w+, (?:.*?, )?avail mem={NUMBER} GB, mem usage={NUMBER} GB\.$"
MAMBA = (
    r"Mamba Cache is allocated\. max_mamba_cache_size: \d+, conv_state size: [\d.]+GB, ssm_state size: [\d.]+GB "
    r"intermediate_ssm_state_cache size: [\d.]+GB intermediate_conv_window_cache size: [\d.]+GB"
)
KV = rf"KV Cache is allocated\. dtype: [\w.]+, #tokens: \d+, K size: {NUMBER} GB, V size: {NUMBER} GB$"
POOL_END = rf"Memory pool end\. avail mem={NUMBER} GB$"
GRAPH_BEGIN = rf"Capture {{}} CUDA graph begin\. backend=full, .*avail mem={NUMBER} GB$"
GRAPH_END = rf"Capture {{}} CUDA graph end\. .*elapsed=[\d.]+ s, mem usage={NUMBER} GB, avail mem={NUMBER} GB\.$"
READY_LINE = (
    r"max_total_num_tokens=\d+, chunked_prefill_size=\d+, max_prefill_tokens=\d+, max_running_requests=64, "
    rf"context_len=\d+, available_gpu_mem={NUMBER} GB$"
)
TIMINGS = (
    r"Engine startup timings \(s\): load_weight=[\d.]+, kv_cache_allocation=[\d.]+, scheduler_e2e=[\d.]+, "
    r"cuda_graph=\{[^}]*\}, tokenizer_e2e=[\d.]+$"
)
PREFILL = (
    r"Prefill batch, #new-seq: \d+, #new-token: 8, #cached-token: 0, full token usage: [\d.]+, mamba usage: [\d.]+, "
    r"#running-req: \d+, #queue-req: \d+, #pending-token: \d+, cuda graph: False, input throughput \(token/s\): [\d.]+$"
)
DECODE = (
    r"Decode batch, #running-req: 1, #full token: \d+, full token usage: [\d.]+, mamba num: \d+, mamba usage: [\d.]+, "
    r"accept len: [\d.]+, accept rate: [\d.]+, cuda graph: True, gen throughput \(token/s\): [\d.]+, #queue-req: 0$"
)
TIMELINE = [
    r"server_args=\{'model_path': 'Qwen/Qwen3\.5-122B-A10B'",
    r"Init parallel begin\.$",
    r"Init parallel ends\. elapsed=[\d.]+ s$",
    r"Memory baseline taken\. mem usage=[\d.]+ GB$",
    LOAD_BEGIN,
    LOAD_END,
    r"Memory baseline taken\. mem usage=[\d.]+ GB$",
    LOAD_BEGIN,
    LOAD_END,
    MAMBA,
    KV,
    POOL_END,
    KV,
    POOL_END,
    GRAPH_BEGIN.format("target verify"),
    GRAPH_END.format("target verify"),
    GRAPH_BEGIN.format("draft decode"),
    GRAPH_END.format("draft decode"),
    GRAPH_BEGIN.format("draft extend"),
    GRAPH_END.format("draft extend"),
    READY_LINE,
    TIMINGS,
    r"INFO:     Started server process \[\d+\]$",
    r"INFO:     Application startup complete\.$",
    r"INFO:     Uvicorn running on http://127\.0\.0\.1:\d+ \(Press CTRL\+C to quit\)$",
    PREFILL,
    r"The server is fired up and ready to roll!$",
    DECODE,
]


def test_the_timeline_of_a_speculating_hybrid_is_complete_and_in_order(tmp_path: Path) -> None:
    flags = QWEN + "--max-running-requests 64 --decode-log-interval 2" + chain(3)
    with emulator(tmp_path, flags, speedup=1000) as running:
        running.wait_for(READY)
        running.generate(text="hello", sampling_params={"max_new_tokens": 20})
        lines = [PREFIX.match(line) for line in running.log.splitlines()]
    messages = iter([m["msg"] for m in lines if m and m["rank"] in {"", " TP0"}])
    for pattern in TIMELINE:
        assert any(re.match(pattern, message) for message in messages), f"missing or out of order: {pattern}"
    ranks = {m["rank"].strip() for m in lines if m and m["msg"].startswith("Load weight begin.")}
    assert ranks == {"TP0", "TP1", "TP2", "TP3"}


def test_the_capture_bar_passes_through_the_reported_line(tmp_path: Path) -> None:
    flags = "--mem-fraction-static 0.60 --cuda-graph-max-bs-decode 16 --max-running-requests 16" + chain(1)
    with emulator(tmp_path, DEEPSEEK + flags, speedup=1000) as running:
        running.wait_for(READY)
        log = running.log_file.read_bytes().decode()
    bar = "\rCapturing batches (bs=10 avail_mem=25.39 GB):  25%|██▌       | 3/12 [00:13<00:33,  3.70s/it]\r"
    assert bar in log


def test_a_bar_counts_in_eighths_of_a_character() -> None:
    assert progress_bar("x", 0, 12, 0, 3.7) == "x:   0%|          | 0/12 [00:00<?, ?it/s]"
    assert progress_bar("x", 3, 12, 13.0, 3.7) == "x:  25%|██▌       | 3/12 [00:13<00:33,  3.70s/it]"
    assert progress_bar("x", 12, 12, 3.0, 0.25) == "x: 100%|██████████| 12/12 [00:03<00:00,  4.00it/s]"

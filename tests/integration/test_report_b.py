"""The second field campaign on the emulator: memory verdicts, and speeds through the real load path."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from actors.loadgen import load_endpoint
from orchestrator.metrics import PointMetrics, summarise
from orchestrator.trial import LoadLevel, PointSpec
from tests.actors.emulator.running import READY, emulator

pytestmark = pytest.mark.timeout(240)

MODEL = "--model-path deepseek-ai/DeepSeek-V4-Flash --tp-size 4 --max-running-requests 256 --enable-metrics"
MTP = " --speculative-algorithm EAGLE --speculative-num-steps 1 --speculative-eagle-topk 1"
MTP += " --speculative-num-draft-tokens 2"
FITS = " --mem-fraction-static 0.60 --cuda-graph-max-bs-decode 16"


def load(port: int, concurrency: int, output_tokens: int, requests: int) -> PointMetrics:
    level = LoadLevel("concurrency", float(concurrency))
    spec = PointSpec(
        workload="chat",
        level=level,
        api="generate",
        dataset="random_text",
        input_tokens=256,
        output_tokens=output_tokens,
        warmup_s=0,
        warmup_requests=0,
        duration_s=None,
        requests=requests,
        temperature=0,
        ignore_eos=True,
        request_timeout_s=200,
    )
    records, client = asyncio.run(load_endpoint(f"http://127.0.0.1:{port}", spec))
    return summarise(records, level=level, client=client)


@pytest.mark.parametrize(("flags", "tpot_ms"), [("", 88.0), (MTP, 88 / 1.47)], ids=["plain", "mtp"])
def test_one_user_sees_the_reported_time_per_token(tmp_path: Path, flags: str, tpot_ms: float) -> None:
    with emulator(tmp_path, MODEL + FITS + flags, speedup=60) as server:
        server.wait_for(READY)
        measured = load(server.port, 1, output_tokens=64, requests=1)

    assert measured.value("tpot_p50_ms") == pytest.approx(tpot_ms, rel=0.05)


@pytest.mark.parametrize("flags", ["", MTP], ids=["plain", "mtp"])
def test_sixteen_users_share_23_tokens_per_second_with_or_without_speculation(tmp_path: Path, flags: str) -> None:
    with emulator(tmp_path, MODEL + FITS + flags, speedup=60) as server:
        server.wait_for(READY)
        measured = load(server.port, 16, output_tokens=64, requests=16)
        log = server.log

    tokens = measured.output_tokens_total
    assert tokens == 16 * 64
    assert measured.value("output_throughput_tok_s") == pytest.approx(23, rel=0.05)
    assert ("from the requested 256 to 8" in log) is bool(flags)

"""The log of a start and of batches: which lines, in which order, in which form, on which stream."""

from __future__ import annotations

import re

import pytest

from tests.contract.servers import PREFIX, Server, Variant

NUMBER = r"-?\d+\.\d\d"
# What only says something of the machine, the tokenizer or the Python packages of a real server.
NOISE = re.compile(
    r"Ignore import error|Fail to set RLIMIT_NOFILE|Using default HuggingFace chat template|init_threads_binding"
    r"|init_cpu_threads_env|Cannot detect CUDA architecture|Using fallback token IDs|SPECULATIVE_MOE_\w+ is not"
)

SPECULATION = "Overlap schedule is not implemented for speculative decoding on CPU\\."
SYNCHRONOUS = r"Non-overlap \(synchronous\) spec v2 is used for eagle/eagle3/standalone speculative decoding\."
WARNINGS = {
    "plain": [],
    "eagle": [
        r"Max running requests is reset to 48 for speculative decoding\. "
        r"You can override this by explicitly setting --max-running-requests\.",
        SPECULATION,
        SYNCHRONOUS,
    ],
    "standalone": [
        SPECULATION,
        SYNCHRONOUS,
        r"speculative_num_draft_tokens is adjusted to speculative_num_steps \+ 1 when speculative_eagle_topk == 1",
    ],
    "ngram": [
        SPECULATION,
        r"The mixed chunked prefill are disabled because of using ngram speculative decoding\.",
    ],
}
BASELINE = rf"Memory baseline taken\. mem usage={NUMBER} GB"
LOADED = [
    BASELINE,
    rf"Load weight begin\. avail mem={NUMBER} GB",
    rf"Load weight end\. elapsed={NUMBER} s, type=\w+, avail mem={NUMBER} GB, mem usage={NUMBER} GB\.",
]
POOL = [
    rf"KV Cache is allocated\. dtype: torch\.bfloat16, #tokens: 4096, K size: {NUMBER} GB, V size: {NUMBER} GB",
    rf"Memory pool end\. avail mem={NUMBER} GB",
]
NO_PREFILL_GRAPH = [
    r"Disable prefill CUDA graph because cuda_graph_config resolved prefill\.backend='disabled' "
    r"\(e\.g\. via --cuda-graph-backend-prefill=disabled or auto-disable rules\)\."
]
PHASES = ["prefill", "decode", "target_verify", "draft_prefill", "draft_decode", "draft_extend"]
PREFILL = (
    r"Prefill batch, #new-seq: {new_seq}, #new-token: {new_token}, #cached-token: {cached}, token usage: \d\.\d\d, "
    r"#running-req: \d+, #queue-req: \d+, #pending-token: \d+, cpu graph: False, "
    r"input throughput \(token/s\): \d+\.\d\d"
)
ACCEPT = r"accept len: (?P<length>\d\.\d\d), accept rate: (?P<rate>\d\.\d\d), "
DECODE = (
    r"Decode batch, #running-req: 1, #token: \d+, token usage: \d\.\d\d, {accept}cpu graph: False, "
    r"gen throughput \(token/s\): \d+\.\d\d, #queue-req: 0"
)


def timeline(variant: Variant, port: int, pid: int) -> list[str]:
    models = 2 if variant.has_draft_model else 1
    ready = (
        "max_total_num_tokens=4096, chunked_prefill_size=4096, max_prefill_tokens=16384, "
        rf"max_running_requests={variant.max_running}, context_len=4096, available_cpu_mem={NUMBER} GB"
    )
    graphs = ", ".join(rf"{phase}=0\.00" for phase in PHASES)
    return [
        *WARNINGS[variant.name],
        r"server_args=\{'model_path': '\.sglang-cpu/models/target', 'tokenizer_path': .*\}",
        r"Init parallel begin\.",
        rf"Init parallel ends\. elapsed={NUMBER} s",
        *(LOADED * models),
        *(POOL * models),
        *(NO_PREFILL_GRAPH * models),
        ready,
        r"Init Unified Radix Cache\. Components: \(<ComponentType\.FULL: 0>,\)\. Tree Core: RustUnifiedTreeCore",
        r"Tree cache initialized: source=default impl=UnifiedRadixCache hybrid_swa=False hybrid_ssm=False "
        r"hicache_attached=False",
        rf"Engine startup timings \(s\): load_weight={NUMBER}, kv_cache_allocation={NUMBER}, "
        rf"scheduler_e2e={NUMBER}, cuda_graph=\{{{graphs}\}}, tokenizer_e2e={NUMBER}",
        rf"INFO:     Started server process \[{pid}\]",
        r"INFO:     Waiting for application startup\.",
        r"INFO:     Application startup complete\.",
        rf"INFO:     Uvicorn running on http://127\.0\.0\.1:{port} \(Press CTRL\+C to quit\)",
        PREFILL.format(new_seq=1, new_token=r"\d+", cached=0),
        r"The server is fired up and ready to roll!",
    ]


def test_a_start_says_these_lines_in_this_order_and_no_others(server: Server, variant: Variant) -> None:
    said = [message for message in server.messages() if not NOISE.match(message)]
    expected = timeline(variant, server.port, server.process.pid)
    for message, pattern in zip(said, expected, strict=False):
        assert re.fullmatch(pattern, message), f"expected {pattern}, got {message[:300]}"
    assert len(said) >= len(expected)


def test_the_draft_model_is_told_from_the_target_by_order(server: Server, variant: Variant) -> None:
    types = [match[1] for m in server.messages() if (match := re.match(r"Load weight end\. .*type=(\w+),", m))]
    assert len(types) == (2 if variant.has_draft_model else 1)


def test_server_args_shows_resolved_values(server: Server, variant: Variant) -> None:
    line = next(message for message in server.messages() if message.startswith("server_args="))
    draft = variant.draft_tokens or None
    for name, value in (
        ("max_running_requests", variant.max_running),
        ("speculative_algorithm", variant.algorithm),
        ("speculative_num_draft_tokens", draft),
        ("chunked_prefill_size", 4096),
        ("page_size", 1),
    ):
        assert f"'{name}': {value!r}, " in line


def test_only_the_access_log_goes_to_stdout(server: Server) -> None:
    server.call("GET", "/model_info")
    server.wait_until(lambda: "GET /model_info" in server.access_log, "access line")
    lines = [PREFIX.match(line) for line in server.access_log.splitlines()]
    calls = [match["message"] for match in lines if match]
    assert len(calls) == len(lines)
    assert all(re.fullmatch(r'INFO:     127\.0\.0\.1:\d+ - "[A-Z]+ \S+ HTTP/1\.1" \d{3} [\w ]+', c) for c in calls)
    assert "HTTP/1.1" not in server.log


def test_a_server_warms_itself_up_over_http(server: Server) -> None:
    calls = re.findall(r'"((?:GET /model_info|POST \S+)) HTTP/1\.1" 200 OK', server.access_log)
    assert calls[:3] == ["GET /model_info", "POST /generate", "POST /freeze_gc"]


def test_a_prefill_line_tells_new_and_cached_tokens(server: Server, variant: Variant) -> None:
    prompt = [101, 111, 121, 131, 141, 151, 161, 171, 181, 191]
    cached = 8 if variant.bigram_cache else 9
    server.flush()
    for new, old in ((10, 0), (10 - cached, cached)):
        before = len(server.messages())
        server.generate(input_ids=prompt, sampling_params={"max_new_tokens": 1, "temperature": 0})
        pattern = PREFILL.format(new_seq=1, new_token=new, cached=old)
        server.wait_until(
            lambda b=before, p=pattern: any(re.fullmatch(p, m) for m in server.messages()[b:]),  # type: ignore[misc]
            pattern,
        )


def test_decode_lines_come_every_10_steps_and_tell_acceptance_where_there_is_speculation(
    server: Server, variant: Variant
) -> None:
    before = len(server.messages())
    server.generate(input_ids=[150, 250, 350], sampling_params={"max_new_tokens": 130, "ignore_eos": True})
    pattern = re.compile(DECODE.format(accept=ACCEPT if variant.algorithm else ""))

    def lines() -> list[str]:
        return [m for m in server.messages()[before:] if m.startswith("Decode batch")]

    server.wait_until(lambda: len(lines()) >= 2, "decode lines")
    for line in lines():
        match = pattern.fullmatch(line)
        assert match, line
        if variant.algorithm:
            # Tokens of a verify, the bonus token included, against drafts accepted of those proposed.
            accepted = float(match["rate"]) * (variant.draft_tokens - 1)
            assert float(match["length"]) == pytest.approx(1 + accepted, abs=0.03)

"""Load clients of other projects, all driven with the same work and read into the same words.

`Work` says what is to be sent, a peer's `words` how its command line says that, and its `read` turns the files that it
has written into a `Reading`. Versions are those of `install.sh`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers import readings
from benchmarks.peers.work import Reading, Work

ROOT = Path(__file__).resolve().parent.parent.parent
PEERS = ROOT / ".peers"
TOKENIZER = PEERS / "tokenizer"
MODEL = "bench-model"
NOT_INSTALLED = "not installed: run benchmarks/peers/install.sh"


@dataclass(frozen=True, slots=True)
class Peer:
    """One client. `executable` is below the folder of peers; `environment` is added to ours."""

    name: str
    version: str
    executable: str
    words: Callable[[Work], list[str]]
    read: Callable[[Work], Reading]
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def installed(self) -> bool:
        return (PEERS / self.executable).exists()

    def whole_environment(self, work: Work) -> dict[str, str]:
        """Ours without what would change what other interpreters import, and the peer's own words."""
        kept = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "HF_HUB_OFFLINE", "VIRTUAL_ENV"}}
        given = {name: value.format(workers=work.workers) for name, value in self.environment.items()}
        return kept | {"TOKENIZERS_PARALLELISM": "false", "HOME": str(work.folder)} | given


def _bin(executable: str) -> str:
    return str(PEERS / executable)


def _sglang_flags(work: Work) -> list[str]:
    chat = "-chat" if work.api == "chat" else ""
    given: dict[str, Any] = {
        "backend": f"sglang-oai{chat}", "base-url": work.url, "dataset-name": "random-ids", "model": MODEL,
        "tokenizer": TOKENIZER, "num-prompts": work.requests, "random-input-len": work.input_tokens,
        "random-output-len": work.output_tokens, "random-range-ratio": "1.0", "max-concurrency": work.concurrency,
        "output-file": work.folder / "sglang.jsonl", "warmup-requests": 0,
    }  # fmt: skip
    return [*_flags(given), "--disable-tqdm", "--output-details"]


def _flags(given: Mapping[str, Any]) -> list[str]:
    return [word for name, value in given.items() for word in (f"--{name}", str(value))]


def _rust_words(work: Work) -> list[str]:
    extension = next((PEERS / "sglang/lib").glob("python3*/site-packages/cpu.pth")).read_text().strip()
    library = next(Path(extension).glob("sglang/srt/rust_extensions/_bench*.so"))
    driver = str(Path(__file__).with_name("rust_driver.py"))
    threads = ["--worker-threads", str(work.workers)]
    return [_bin("sglang/bin/python"), driver, str(library), *_sglang_flags(work), *threads]


def _python_words(work: Work) -> list[str]:
    return [_bin("sglang/bin/python"), "-m", "sglang.benchmark.serving", *_sglang_flags(work)]


def _vllm_words(work: Work) -> list[str]:
    chat = work.api == "chat"
    given = {
        "backend": "openai-chat" if chat else "openai", "base-url": work.url, "model": MODEL, "tokenizer": TOKENIZER,
        "endpoint": "/v1/chat/completions" if chat else "/v1/completions", "dataset-name": "random",
        "random-input-len": work.input_tokens, "random-output-len": work.output_tokens, "num-prompts": work.requests,
        "max-concurrency": work.concurrency, "result-dir": work.folder, "result-filename": "vllm.json",
        "ready-check-timeout-sec": 0,
    }  # fmt: skip
    flags = ["--ignore-eos", "--save-result", "--save-detailed", "--disable-tqdm"]
    return [_bin("vllm/bin/vllm"), "bench", "serve", *_flags(given), *flags]


def _guidellm_words(work: Work) -> list[str]:
    path = "/v1/chat/completions" if work.api == "chat" else "/v1/completions"
    return [
        _bin("guidellm/bin/guidellm"), "run", "--disable-console-interactive",
        "--backend", f"kind=openai_http,target={work.url},request_format={path},model={MODEL}",
        "--profile", f"kind=concurrent,streams={work.concurrency}",
        "--constraint", f"kind=max_requests,count={work.requests}",
        "--data", f"kind=synthetic_text,prompt_tokens={work.input_tokens},output_tokens={work.output_tokens}",
        "--tokenizer", f"kind=huggingface_auto,model={TOKENIZER}",
        "--output", f"kind=json,path={work.folder / 'guidellm.json'}",
    ]  # fmt: skip


def _aiperf_words(work: Work) -> list[str]:
    given = {
        "model": MODEL, "url": work.url, "endpoint-type": "chat" if work.api == "chat" else "completions",
        "tokenizer": TOKENIZER, "concurrency": work.concurrency, "request-count": work.requests,
        "synthetic-input-tokens-mean": work.input_tokens, "synthetic-input-tokens-stddev": 0,
        "output-tokens-mean": work.output_tokens, "output-tokens-stddev": 0, "extra-inputs": "ignore_eos:true",
        "ui": "none", "output-artifact-dir": work.folder / "aiperf", "workers-max": work.workers,
    }  # fmt: skip
    return [_bin("aiperf/bin/aiperf"), "profile", "--streaming", *_flags(given)]


def _inference_perf_words(work: Work) -> list[str]:
    def fixed(value: int) -> dict[str, int]:
        return {"min": value, "max": value, "mean": value, "std_dev": 0, "total_count": work.requests}

    lengths = {
        "type": "random",
        "input_distribution": fixed(work.input_tokens),
        "output_distribution": fixed(work.output_tokens),
    }
    # Its random prompts are for completions only.
    half = work.input_tokens // 2
    shared = {"num_groups": work.requests, "num_prompts_per_group": 1, "system_prompt_len": half, "question_len": half}
    groups = {"type": "shared_prefix", "shared_prefix": {**shared, "output_len": work.output_tokens}}
    asked = {
        "api": {"type": "chat" if work.api == "chat" else "completion", "streaming": True},
        "server": {"type": "vllm", "model_name": MODEL, "base_url": work.url, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": str(TOKENIZER)},
        "data": groups if work.api == "chat" else lengths,
        "load": {
            "type": "concurrent",
            "stages": [{"num_requests": work.requests, "concurrency_level": work.concurrency}],
            "num_workers": work.workers,
        },
        "report": {"request_lifecycle": {"summary": True, "per_stage": True, "per_request": True}},
        "storage": {"local_storage": {"path": str(work.folder / "inference-perf")}},
    }
    config = work.folder / "inference-perf.yml"
    config.write_text(json.dumps(asked), encoding="utf-8")  # JSON is YAML
    return [_bin("inference-perf/bin/inference-perf"), "-c", str(config)]


def all_peers() -> list[Peer]:
    """Every peer, the cheapest to start first."""
    # The name of a model is no reason to look for it in the network, and to try again for a minute.
    offline = {"HF_HUB_OFFLINE": "1"}
    cpu = {"PYTHONPATH": str(ROOT / "tests/sglang_cpu"), **offline}
    one_set = {"GUIDELLM__MAX_WORKER_PROCESSES": "{workers}", **offline}
    return [
        Peer("sglang-rust", "0.5.23", "sglang/bin/python", _rust_words, readings.read_sglang),
        Peer("inference-perf", "0.7.0", "inference-perf/bin/inference-perf", _inference_perf_words,
             readings.read_inference_perf),
        Peer("aiperf", "0.13.0", "aiperf/bin/aiperf", _aiperf_words, readings.read_aiperf),
        Peer("sglang-python", "0.5.23", "sglang/bin/python", _python_words, readings.read_sglang, cpu),
        Peer("vllm", "0.32.0", "vllm/bin/vllm", _vllm_words, readings.read_vllm, offline),
        Peer("guidellm", "0.8.1", "guidellm/bin/guidellm", _guidellm_words, readings.read_guidellm, one_set),
    ]  # fmt: skip

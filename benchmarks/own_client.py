"""Our own load client in a process of its own, for the benchmarks that compare it with others.

Everything that knows how our client is called is in `measured`.

    python -m benchmarks.own_client URL --api completions --concurrency 64 --requests 640 --output-tokens 128
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
import time
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import orjson
import uvloop

from actors.loadgen import load_endpoint
from benchmarks.stream_script import MODEL
from benchmarks.stream_server import raise_file_limit
from orchestrator.load_command import Api
from orchestrator.metrics import summarise
from orchestrator.records import RequestRecord
from orchestrator.trial import ClientReport, LoadLevel, PointSpec


def measured(
    url: str, api: str, concurrency: int, requests: int, output_tokens: int, input_tokens: int = 128
) -> tuple[list[RequestRecord], ClientReport]:
    """A closed loop through the load path of a sweep: its records, without the warm-up, and the client's report."""
    spec = PointSpec(
        workload="bench",
        level=LoadLevel("concurrency", float(concurrency)),
        api=cast(Api, api),
        dataset="random_text",
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        warmup_s=0.0,
        warmup_requests=0,
        duration_s=None,
        requests=requests,
        temperature=0.0,
        ignore_eos=True,
        request_timeout_s=600.0,
        model=MODEL,
    )
    records, report = uvloop.run(load_endpoint(url, spec))
    return [record for record in records if not record.warmup], report


def told(records: list[RequestRecord], report: ClientReport, concurrency: int) -> dict[str, Any]:
    """What the benchmarks want to know, in the words that they use of every client."""
    ok = [record for record in records if record.status == "ok" and record.first_token_ns is not None]
    metrics = summarise(records, level=LoadLevel("concurrency", float(concurrency)), client=report)
    statuses = [str(record.status) for record in records]
    return {
        "completed": len(ok),
        "failed": metrics.requests_failed,
        "statuses": {status: statuses.count(status) for status in sorted(set(statuses))},
        "ttft_ms": [((record.first_token_ns or 0) - record.sent_ns) / 1e6 for record in ok],
        "digests": [record.prompt_hash for record in ok],
        "answers": [kept(record) for record in ok],
        "throughput_tok_s": metrics.output_throughput_tok_s,
        "cpu_s": report.cpu_s,
        "peak_concurrency": report.peak_concurrency,
        "metrics": asdict(metrics),
    }


def kept(record: RequestRecord) -> tuple[float, list[float], int]:
    """(milliseconds to the first token, gaps between chunks, tokens) of one answer."""
    gaps = [(b - a) / 1e6 for a, b in pairwise(record.chunk_ns)]
    return ((record.first_token_ns or 0) - record.sent_ns) / 1e6, gaps, record.output_tokens or 0


def main() -> None:
    """Print what was measured as JSON, or write the records too."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("url")
    arguments.add_argument("--api", default="completions")
    arguments.add_argument("--concurrency", type=int, default=64)
    arguments.add_argument("--requests", type=int, default=640)
    arguments.add_argument("--output-tokens", type=int, default=128)
    arguments.add_argument("--input-tokens", type=int, default=128)
    arguments.add_argument("--profile", action="store_true", help="where the time goes, on stderr")
    arguments.add_argument("--records", type=Path, help="write every record there, one JSON line each")
    asked = arguments.parse_args()
    raise_file_limit()
    profile = cProfile.Profile(time.thread_time)
    if asked.profile:
        profile.enable()
    records, report = measured(
        asked.url, asked.api, asked.concurrency, asked.requests, asked.output_tokens, asked.input_tokens
    )
    if asked.profile:
        profile.disable()
        pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(25)
    if asked.records:
        asked.records.write_bytes(b"".join(orjson.dumps(asdict(record)) + b"\n" for record in records))
    print(orjson.dumps(told(records, report, asked.concurrency)).decode())  # noqa: T201


if __name__ == "__main__":
    main()

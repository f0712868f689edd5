"""Our own load client in a process of its own, for the benchmarks that compare it with others.

Everything that knows how our client is called is in `measured`.

    python -m benchmarks.own_client URL --api completions --concurrency 64 --requests 640 --output-tokens 128
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
import tempfile
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import numpy as np
import orjson
import uvloop

from actors.load.loadgen import LoadGenerator
from benchmarks.stream_script import MODEL
from benchmarks.stream_server import raise_file_limit
from orchestrator.loads.load_dataset import LoadDataset
from orchestrator.loads.load_request import Api
from orchestrator.points.metrics import summarise
from orchestrator.run_files.point_table import columns_of
from orchestrator.trial import ClientReport, LoadLevel, Point, PointSpec


def measured(
    url: str, api: str, concurrency: int, requests: int, output_tokens: int, input_tokens: int = 128
) -> tuple[dict[str, Any], ClientReport]:
    """A closed loop as `specsweep load` offers it, records to files while it runs: columns as `summarise` takes them
    and the client's report."""
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
    with tempfile.TemporaryDirectory(prefix="specsweep-bench-") as folder:
        dataset = LoadDataset(Path(folder))
        report = uvloop.run(_offered(url, spec, dataset))
        dataset.flush()
        table = dataset.table()
        return columns_of(table) | {name: table.column(name).to_pylist() for name in ("status", "prompt_hash")}, report


async def _offered(url: str, spec: PointSpec, dataset: LoadDataset) -> ClientReport:
    async with aclosing(LoadGenerator(engine="attach").run(url, Point("bench", "", "", 0, spec))) as items:
        async for item in items:
            if isinstance(item, ClientReport):
                return item
            dataset.append(item)
    raise RuntimeError("the load ended without a report")


def told(columns: dict[str, Any], report: ClientReport, concurrency: int, *, answers: bool) -> dict[str, Any]:
    """What the benchmarks want to know, in the words that they use of every client."""
    metrics = summarise(columns, level=LoadLevel("concurrency", float(concurrency)), client=report)
    statuses: list[str] = columns["status"]
    first = (columns["first_token_ns"] - columns["sent_ns"]) / 1e6
    ok = [i for i, status in enumerate(statuses) if status == "ok" and not np.isnan(first[i])]
    return {
        "completed": len(ok),
        "failed": metrics.requests_failed,
        "statuses": {status: statuses.count(status) for status in sorted(set(statuses))},
        "ttft_ms": [float(first[i]) for i in ok],
        "digests": [columns["prompt_hash"][i] for i in ok],
        "answers": [kept(columns, i, float(first[i])) for i in ok] if answers else [],
        "throughput_tok_s": metrics.output_throughput_tok_s,
        "cpu_s": report.cpu_s,
        "peak_concurrency": report.peak_concurrency,
        "metrics": metrics.plain(),
    }


def kept(columns: dict[str, Any], i: int, first_ms: float) -> tuple[float, list[float], int]:
    """(milliseconds to the first token, gaps between chunks, tokens) of one answer."""
    flat, offsets = columns["chunk_ns"]
    gaps = np.diff(flat[offsets[i] : offsets[i + 1]]) / 1e6
    return first_ms, [float(gap) for gap in gaps], int(columns["output_tokens"][i])


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
    arguments.add_argument("--answers", action="store_true", help="tell every answer's gaps between chunks")
    asked = arguments.parse_args()
    raise_file_limit()
    profile = cProfile.Profile(time.thread_time)
    if asked.profile:
        profile.enable()
    columns, report = measured(
        asked.url, asked.api, asked.concurrency, asked.requests, asked.output_tokens, asked.input_tokens
    )
    if asked.profile:
        profile.disable()
        pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(25)
    print(orjson.dumps(told(columns, report, asked.concurrency, answers=asked.answers)).decode())  # noqa: T201


if __name__ == "__main__":
    main()

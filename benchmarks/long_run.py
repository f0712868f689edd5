"""Half an hour of paced load through our client: does its memory grow, and does it count every token?

100 streams of 50 tokens/s against the streaming server, through the command line in a process of its own whose tree is
watched from outside. What is printed and counted must be what the server has written.

    python -m benchmarks.long_run --minutes 30
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.bench_rig import ROOT, BenchServer, Cores, adopt_orphans
from benchmarks.stream_script import Script
from benchmarks.stream_server import raise_file_limit

TOKENS = 256
EVERY_S = 5.0


def command(url: str, streams: int, seconds: float, folder: Path) -> list[str]:
    """`specsweep load` as a user would call it. All that knows its options is here."""
    words = [sys.executable, "-m", "orchestrator", "load", "--url", url, "--api", "completions", "--json"]
    words += ["--concurrency", str(streams), "--output-tokens", str(TOKENS), "--input-tokens", "128"]
    known = subprocess.run(
        [sys.executable, "-m", "orchestrator", "load", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    words += ["--warmup", "0"] if "--warmup " in known else []
    words += ["--duration-s" if "--duration-s" in known else "--duration", f"{seconds:g}"]
    if "--out " in known:
        words += ["--out", str(folder / "run")]
    return words


def tree_rss_mib(pid: int) -> float:
    """Resident memory of a process and all below it, 0 if it is gone."""
    try:
        root = psutil.Process(pid)
        return sum(_rss(process) for process in [root, *root.children(recursive=True)]) / 2**20
    except psutil.NoSuchProcess:
        return 0.0


def _rss(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def watched(words: Sequence[str], cores: Cores, folder: Path, limit_s: float) -> tuple[list[tuple[float, float]], str]:
    """Run to the end: (seconds, MiB) every few seconds, and what it printed."""

    def prepare() -> None:
        os.sched_setaffinity(0, cores.clients)
        raise_file_limit()

    samples: list[tuple[float, float]] = []
    out = folder / "stdout"
    with out.open("wb") as stdout:
        child = subprocess.Popen(
            words,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            preexec_fn=prepare,  # noqa: PLW1509 - this process has no threads
        )
        began = time.monotonic()
        while child.poll() is None:
            passed = time.monotonic() - began
            if mib := tree_rss_mib(child.pid):
                samples.append((passed, mib))
            if passed > limit_s:
                child.kill()
            time.sleep(EVERY_S)
    if child.wait() != 0:
        raise SystemExit(f"the client ended with {child.returncode}; see above")
    return samples, out.read_text(encoding="utf-8")


def at(samples: Sequence[tuple[float, float]], second: float) -> float:
    """The sample closest to this second."""
    return min(samples, key=lambda sample: abs(sample[0] - second))[1]


def main() -> None:
    """Load, watch, compare."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--minutes", type=float, default=30.0)
    arguments.add_argument("--streams", type=int, default=100)
    arguments.add_argument("--rate", type=float, default=50.0, help="tokens per second of a stream")
    arguments.add_argument("--samples", type=Path, help="write the samples there, as JSON")
    asked = arguments.parse_args()
    adopt_orphans()
    cores, seconds = Cores.split(), asked.minutes * 60.0
    with tempfile.TemporaryDirectory(prefix="specsweep-long-") as name, BenchServer(cores) as server:
        folder = Path(name)
        server.begin(Script(ttft_ms=100.0, rate=asked.rate))
        words = command(server.url, asked.streams, seconds, folder)
        samples, stdout = watched(words, cores, folder, seconds + 120.0)
        truth = server.truth()
    if asked.samples:
        asked.samples.write_text(json.dumps(samples), encoding="utf-8")
    report(samples, json.loads(stdout), truth)


def report(samples: Sequence[tuple[float, float]], printed: dict[str, Any], truth: dict[str, Any]) -> None:
    """Print memory and tokens. Warm-up requests come first and are counted by the server alone: they are left out."""
    end_s, measured = samples[-1][0], truth["requests"][-printed["requests_total"] :]
    ok = sum(one["tokens"] for one in measured if one["status"] == "ok")
    rest = sum(one["tokens"] for one in measured if one["status"] != "ok")
    moments = (("at 1 min", 60.0), ("at half", end_s / 2), ("at the end", end_s))
    shown = ", ".join(f"{name} {at(samples, second):.1f}" for name, second in moments)
    counted = printed["output_tokens_total"]
    lines = (
        f"{end_s / 60:.1f} minutes, {truth['issued']:,} requests, {truth['tokens'] / end_s:,.0f} tokens/s",
        f"RSS of the client's tree, MiB: {shown}, peak {max(mib for _, mib in samples):.1f}",
        f"requests: {printed['requests_ok']:,} ok, {printed['requests_failed']:,} failed by the client",
        f"tokens of whole answers: {counted or 0:,} by the client, {ok:,} by the server (in others {rest:,})",
    )
    print("\n".join(lines))  # noqa: T201
    if counted != ok:
        raise SystemExit("the client and the server do not agree")


if __name__ == "__main__":
    main()

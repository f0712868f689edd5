"""Nights on emulated servers: are builds that are worse by a known amount found, and unchanged ones left alone?

    python -m benchmarks.night_pairs --nights 10 [--case unchanged] [--duration 2]

Each night is `specsweep nightly` as a user runs it, on an embedded Ray, into one history per case; the servers have
noise of their own (host 5 %, start 1 %, point 1 %), whose seed is another every night. Prints a table as Markdown.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
SPEEDS = ("output_throughput_tok_s", "tpot_p50_ms", "e2e_p50_ms")
SLOWER, SMALLER = ["--emulator-slowdown", "1.08"], ["--emulator-kv-share", "0.85"]


@dataclass(frozen=True, slots=True)
class Case:
    """What the candidate has otherwise than the reference, and which metrics may regress by it: any of them counts."""

    name: str
    candidate: dict[str, Any]
    regresses: tuple[str, ...]


CASES = (
    Case("unchanged", {"name": "unchanged", "env": {"NIGHT": "unchanged"}}, ()),
    Case("slower by 8 %", {"name": "slower", "extra_args": SLOWER}, SPEEDS),
    Case("KV cache smaller by 15 %", {"name": "smaller", "extra_args": SMALLER}, ("kv_tokens",)),
    Case("dies at its start", {"name": "dies", "faults": "faults.yaml"}, ("feasible",)),
)


def scenario(case: Case, night: int, duration_s: float, folder: Path) -> dict[str, Any]:
    """One config at one load level."""
    candidate = dict(case.candidate)
    if "faults" in candidate:
        (folder / "faults.yaml").write_text(yaml.safe_dump({"start": [{"label": "oom_graph_target"}]}))
        candidate["faults"] = str(folder / "faults.yaml")
    return {
        "name": "night-pairs",
        "model": {"path": "example/small-model", "bundled_draft": True},
        "engine": {
            "kind": "emulator", "start_speedup": 100,
            "settings": {"speculative_algorithm": "NEXTN", "speculative_num_steps": 2, "max_running_requests": 16},
            "noise": {"seed": night, "host": 0.05, "start": 0.01, "point": 0.01},
        },
        "slots": {"gpus": 1, "emulated_gpus": 1},
        "workloads": [{"name": "chat", "input_tokens": 64, "output_tokens": 64, "concurrency": [4]}],
        "measure": {"warmup_s": 0.5, "duration_s": duration_s},
        "objectives": [{"name": "fast", "maximize": "output_throughput_tok_s", "at": {"concurrency": 4}}],
        "nightly": {"reference": {"name": "reference"}, "candidate": candidate},
        "seed": night,
    }  # fmt: skip


def run_night(case: Case, night: int, duration_s: float, folder: Path) -> dict[str, Any]:
    """One night; what its `night.json` holds."""
    file = folder / "night.yaml"
    file.write_text(yaml.safe_dump(scenario(case, night, duration_s, folder)))
    said = subprocess.run(
        [sys.executable, "-m", "orchestrator", "nightly", str(file), "--history", str(folder / "history"),
         "--address", "local", "--run-dir", str(folder / f"run{night}"), "--json", "-"],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    if not said.stdout:
        raise SystemExit(f"night {night} of {case.name} ended with {said.returncode}:\n{said.stderr}")
    told: dict[str, Any] = json.loads(said.stdout)
    sys.stderr.write(f"{case.name}, night {night}: {told['headline']} ({told['seconds']:.0f} s)\n")
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=10)
    parser.add_argument("--case", choices=[case.name for case in CASES], action="append")
    parser.add_argument("--duration", type=float, default=2.0, help="Seconds of each point.")
    wanted = parser.parse_args()
    columns = ("case", "nights", "verdicts", "named right", "series-nights that regressed otherwise", "pairs a night")
    sys.stdout.write(f"| {' | '.join(columns)} |\n")
    sys.stdout.write("|---|---|---|---|---|---|\n")
    for case in CASES:
        if wanted.case and case.name not in wanted.case:
            continue
        with tempfile.TemporaryDirectory(prefix="night-pairs-") as folder:
            nights = [run_night(case, i + 1, wanted.duration, Path(folder)) for i in range(wanted.nights)]
        sys.stdout.write(row(case, nights) + "\n")
        sys.stdout.flush()


def row(case: Case, nights: list[dict[str, Any]]) -> str:
    """One line of the table."""
    verdicts = Counter(str(night["verdict"] or "gap") for night in nights)
    regressed = [{one["metric"] for one in night["series"] if one["verdict"] == "regressed"} for night in nights]
    right = sum(bool(found & set(case.regresses)) for found in regressed) if case.regresses else "-"
    other = sum(
        one["verdict"] == "regressed" and one["metric"] not in case.regresses
        for night in nights for one in night["series"]
    )  # fmt: skip
    total = sum(len(night["series"]) for night in nights)
    pairs = [max((len(one["pairs"]) or len(one["starts"]) for one in night["series"]), default=0) for night in nights]
    told = ", ".join(f"{count} {name}" for name, count in sorted(verdicts.items()))
    mean = sum(pairs) / len(pairs)
    return f"| {case.name} | {len(nights)} | {told} | {right} | {other} of {total} | {mean:.1f} |"


if __name__ == "__main__":
    main()

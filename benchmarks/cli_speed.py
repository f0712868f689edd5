"""How long a user waits for `--help` and for `plan` of 10,000 trials. Median of whole processes, in seconds."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_REQUESTS = ", ".join(map(str, range(1, 51)))

PLAN = f"""\
name: ten-thousand
model: {{path: org/model, bundled_draft: true}}
engine: {{kind: emulator, settings: {{speculative_algorithm: NEXTN}}}}
sweep:
  axes:
    speculative_num_steps: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    page_size: [1, 16, 32, 64]
    max_running_requests: [{_REQUESTS}]
    schedule_conservativeness: [0.6, 0.8, 1.0, 1.2, 1.5]
slots: {{gpus: 1, emulated_gpus: 64}}
workloads: [{{name: chat, concurrency: [1, 4, 16]}}]
measure: {{duration_s: 30}}
objectives: [{{name: fast, maximize: output_throughput_tok_s, at: {{concurrency: 1}}}}]
"""


def seconds(arguments: list[str], runs: int) -> list[float]:
    """Wall seconds of `python -m orchestrator ARGUMENTS`, sorted, after one warm-up."""
    times = []
    for i in range(runs + 1):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "orchestrator", *arguments], check=True, stdout=subprocess.DEVNULL)
        if i:
            times.append(time.perf_counter() - began)
    return sorted(times)


def main() -> None:
    """Print one line per command."""
    with tempfile.TemporaryDirectory() as folder:
        scenario = Path(folder) / "plan.yaml"
        scenario.write_text(PLAN)
        for name, arguments, runs in (
            ("specsweep --version", ["--version"], 11),
            ("specsweep --help", ["--help"], 11),
            ("specsweep plan, 10,000 trials, 30,000 points", ["plan", str(scenario)], 5),
        ):
            times = seconds(arguments, runs)
            print(f"{name}: median {statistics.median(times):.3f} s, range {times[0]:.3f}-{times[-1]:.3f} s")  # noqa: T201


if __name__ == "__main__":
    main()

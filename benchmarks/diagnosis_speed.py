"""What the diagnosis of a large log costs: lines and MiB per CPU-second, peak memory; for two kinds of lines."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from orchestrator.diagnosing.log_diagnosis import diagnose_log

MIB = 100
START = (
    "[2026-08-07 17:35:50] server_args={'model_path': 'm'}\n"
    "[2026-08-07 17:35:50 TP0] Load weight begin. avail mem=90.00 GB\n"
    "[2026-08-07 17:35:59 TP0] Load weight end. type=M, avail mem=70.00 GB, mem usage=20.00 GB.\n"
    "[2026-08-07 17:35:59 TP0] Memory pool end. avail mem=8.00 GB\n"
    "[2026-08-07 17:36:00] The server is fired up and ready to roll!\n"
)
END = (
    "[2026-08-07 18:36:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
    '  File "/s/srt/managers/scheduler.py", line 1, in event_loop_overlap\n'
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.93 GiB. GPU 0 has a total capacity "
    "of 79.14 GiB of "
    "which 3.79 GiB is free.\n"
)


def serving(number: int) -> str:
    """A batch of the scheduler, and every fourth line an answered request."""
    stamp = f"[2026-08-07 17:{number // 60 % 60:02d}:{number % 60:02d}"
    if number % 4 == 3:
        return f'{stamp}] INFO:     127.0.0.1:{30000 + number % 9000} - "POST /generate HTTP/1.1" 200 OK\n'
    return (
        f"{stamp} TP0] Decode batch, #running-req: 16, #token: {number % 90000}, token usage: 0.21, accept len: 3.10, "
        "accept rate: 0.70, cuda graph: True, gen throughput (token/s): 1596.20, #queue-req: 0\n"
    )


def other(number: int) -> str:
    """What a server says that nobody looks for."""
    return f"[2026-08-07 17:36:01 TP0] Tree cache grew: impl=UnifiedRadixCache nodes={number} all={number}\n"


def _write(file: Path, line: Callable[[int], str]) -> int:
    lines = 0
    with file.open("w", encoding="utf-8") as log:
        log.write(START)
        size = 0
        while size < MIB << 20:
            block = "".join(line(number) for number in range(lines, lines + 1000))
            log.write(block)
            lines, size = lines + 1000, size + len(block)
        log.write(END)
    return lines


def main() -> None:
    """Print a line for each kind of log."""
    with tempfile.TemporaryDirectory() as folder:
        for line in (serving, other):
            file = Path(folder) / "server.log"
            lines = _write(file, line)
            began = time.process_time()
            told = diagnose_log(file).diagnosis
            seconds = time.process_time() - began
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
            print(  # noqa: T201
                f"{line.__name__}: {MIB} MiB, {lines:,} lines: {seconds:.2f} s of CPU, {lines / seconds:,.0f} lines/s, "
                f"{MIB / seconds:.0f} MiB/s, peak {peak:.0f} MiB; {told.label} at line {told.line_number:,}"
            )


if __name__ == "__main__":
    main()

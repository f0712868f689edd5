"""A service manager with Restart=always: starts a process that holds GPU memory again as often as it ends.

`python -m tests.fakes.supervisor LEDGER GIB`; prints the pid of each start. The words behind the program are the same.
"""

from __future__ import annotations

import sys
from pathlib import Path

from actors.gpus.gpu_ledger import GpuLedger
from tests.fakes.gpu_holder import start_holder

SERVER_WORDS = ("sglang.launch_server", "--model-path", "/m", "--port", "30000")


def main(folder: Path, gib: float) -> None:
    ledger = GpuLedger(folder)
    while True:
        child = start_holder(ledger, {0: gib}, words=SERVER_WORDS)
        print(child.pid, flush=True)  # noqa: T201 - to the test
        child.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))

"""The nodes of one emulated server on this machine, an address of loopback for each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.actors.emulator.running import Emulator, emulator, free_port


@contextlib.contextmanager
def nodes(
    folder: Path, flags: str, script: str = "", speedup: float = 200.0, only: int | None = None
) -> Iterator[list[Emulator]]:
    """Both nodes of a server (or `only` one of them) that may not be ready yet, with a fault script if there is one."""
    if script:
        (folder / "faults.yaml").write_text(script, encoding="utf-8")
        flags += f" --emulator-faults {folder / 'faults.yaml'}"
    meeting = f"--nnodes 2 --dist-init-addr 127.0.0.1:{free_port()}"
    with contextlib.ExitStack() as stack:
        started = []
        for rank in (0, 1) if only is None else (only,):
            (folder / f"node{rank}").mkdir()
            own = f"{meeting} --node-rank {rank} --host 127.0.0.{rank + 1}"
            started.append(stack.enter_context(emulator(folder / f"node{rank}", f"{flags} {own}", speedup)))
        yield started

"""What an emulated server says of the GPU memory that it stands for, in a file of its slot, where no ledger is kept."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from actors.processes.process_identity import identify

ACCOUNT_VARIABLE = "SPECSWEEP_GPU_ACCOUNT"


def account_of(environment: Mapping[str, str]) -> Path | None:
    """The file that an environment names, if it names one."""
    named = environment.get(ACCOUNT_VARIABLE)
    return Path(named) if named else None


def write_account(file: Path, used_gib: float, total_gib: float, gpus: int) -> None:
    """We hold so much of each of these GPUs now. Nobody dies of a file that cannot be written."""
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        fresh.write_text(json.dumps([used_gib, total_gib, gpus, os.getpid()]), encoding="ascii")
        fresh.replace(file)


def read_account(file: Path) -> tuple[float, float, int] | None:
    """GiB in use and in all on each GPU, and how many those are; None if nothing was written yet.

    As with a driver, memory is in use as long as its process lives.
    """
    try:
        used_gib, total_gib, gpus, pid = json.loads(file.read_text(encoding="ascii"))
        return float(used_gib) if identify(int(pid)) is not None else 0.0, float(total_gib), int(gpus)
    except (OSError, ValueError, TypeError):
        return None

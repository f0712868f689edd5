"""How many processes the kernel has killed for lack of memory: what a SIGKILL without a sender came from."""

from __future__ import annotations

from pathlib import Path

# Counts, among other things, the processes that the kernel killed for lack of memory since it booted.
_VMSTAT = Path("/proc/vmstat")


def oom_kills() -> int:
    """How many processes the kernel of this host has killed for lack of memory; 0 where it does not say."""
    try:
        counters = dict(line.split() for line in _VMSTAT.read_text(encoding="ascii").splitlines())
    except OSError:
        return 0
    return int(counters.get("oom_kill", 0))

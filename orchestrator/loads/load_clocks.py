"""How far the clocks of load hosts are from the driver's: processes of one point begin together and count alike."""

from __future__ import annotations

from collections.abc import Iterable

# Clocks that are set over the network agree better than a question through Ray can tell.
_SET_NS = 20_000_000


def offset_ns(readings: Iterable[tuple[int, int, int]]) -> int:
    """What is to be added to the driver's wall clock for that of a host, from readings of (ours, theirs, ours) in ns.

    0 where the difference may come from the way to the host and back.
    """
    before, there, after = min(readings, key=lambda reading: reading[2] - reading[0])
    found = there - (before + after) // 2
    return found if abs(found) > max(after - before, _SET_NS) else 0


def clock_note(name: str, offset: int) -> str:
    """For the table of trials."""
    return (
        f"the clock of load process {name} is {abs(offset) / 1e9:.3f} s {'ahead of' if offset > 0 else 'behind'} the "
        "driver's; times of its requests were corrected by that (set the hosts' clocks by NTP)"
    )

"""Whether something outside starts a server again as often as it ends: observations over time -> verdicts. Pure.

Fighting such a supervisor wins nothing: it only makes the next start fail for another reason. So it is named instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from actors.processes.process_identity import ProcessIdentity


@dataclass(frozen=True, slots=True)
class Sighting:
    """A process as it was seen. `server` is the command of the server it belongs to; `unit` says who started that."""

    process: ProcessIdentity
    command: str
    server: str
    unit: str | None = None
    stop: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.command, self.server


@dataclass(frozen=True, slots=True)
class Return:
    """A process took the place of one that had ended: the same command line with a new pid. `evicted`: by us."""

    gone: Sighting
    now: Sighting
    evicted: bool
    times: int

    def __str__(self) -> str:
        why = "was evicted" if self.evicted else "ended"
        often = f" ({self.times} times so far)" if self.times > 1 else ""
        told = (
            f"pid {self.now.process.pid} runs the command of pid {self.gone.process.pid} again, which {why}{often}: "
            f"{self.now.server[:200]}. Something restarts it"
        )
        if self.now.unit is None:
            return f"{told}; find the supervisor (systemctl status {self.now.process.pid}) and stop that"
        return f"{told}: {self.now.unit}. Stop that first: {self.now.stop}"


@dataclass
class CrashLoops:
    """Feed it all that is seen, each time; it keeps who was there, who ended, and who came in their place."""

    _present: dict[ProcessIdentity, Sighting] = field(default_factory=dict)
    _ended: dict[tuple[str, str], list[Sighting]] = field(default_factory=dict)
    _evicted: set[ProcessIdentity] = field(default_factory=set)
    _times: dict[tuple[str, str], int] = field(default_factory=dict)

    def evicted(self, processes: Iterable[ProcessIdentity]) -> None:
        """These are ended by us, or were by an earlier process of ours."""
        self._evicted.update(processes)

    def saw(self, sightings: Iterable[Sighting]) -> tuple[Return, ...]:
        """Everything that is there now, and nothing else is: those that came back since the last look."""
        now = {sighting.process: sighting for sighting in sightings}
        for process, sighting in self._present.items():
            if process not in now:
                self._ended.setdefault(sighting.key, []).append(sighting)
        fresh = [sighting for process, sighting in now.items() if process not in self._present]
        self._present = now
        return tuple(found for sighting in fresh if (found := self._return_of(sighting)) is not None)

    def _return_of(self, sighting: Sighting) -> Return | None:
        """Each that ended explains one that came, so that a second replica is no return."""
        gone = self._ended.get(sighting.key)
        if not gone:
            return None
        before = gone.pop(0)
        times = self._times[sighting.key] = self._times.get(sighting.key, 0) + 1
        return Return(before, sighting, before.process in self._evicted, times)

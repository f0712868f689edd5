"""A config whose server died, with what it was asked, what its load needs, and what was tried before. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.outcome import Label
from orchestrator.recoveries.failed_start import FailedStart
from orchestrator.scenarios.scenario_recovery import KNOBS

# What SGLang 0.5.23 computes for large GPUs when the fraction is left open lies between 0.84 and 0.86.
OPEN_FRACTION = 0.85
# Left free besides what was short: what allocators and later captures need.
MARGIN_SHARE, LEAST_MARGIN_GIB = 0.02, 0.5
# Fractions closer than this have none between them that is worth a start.
SQUEEZED_WITHIN = 0.0199

# Deaths that want a larger fraction, and those that want a smaller one.
_WANTS_MORE = frozenset({Label.KV_BUDGET})
_WANTS_LESS = frozenset({Label.OOM_GRAPH_TARGET, Label.OOM_GRAPH_DRAFT, Label.RUNTIME_OOM, Label.OOM_KV_ALLOC})


@dataclass(frozen=True, slots=True)
class Needs:
    """What the load asks of a server: requests at once, tokens of the longest request (None if not known)."""

    running: int
    tokens: int | None


@dataclass(frozen=True, slots=True)
class Try:
    """One start of a lineage that died: its settings and its numbers."""

    settings: Mapping[str, Any]
    failed: FailedStart


@dataclass(frozen=True, slots=True)
class Change:
    """One setting, from what it was (None: left open) to what it shall be, and why, with the numbers used."""

    name: str
    was: Any
    now: Any
    why: str

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "was": self.was, "now": self.now, "why": self.why}


@dataclass(frozen=True, slots=True)
class Situation:
    """A config whose server died: what steps go by.

    `tries` are the earlier starts of its lineage, oldest first; `siblings` died too and differ in memory settings only.
    """

    settings: Mapping[str, Any]
    failed: FailedStart
    needs: Needs
    may_change: frozenset[str] = frozenset[str](KNOBS)
    tries: tuple[Try, ...] = ()
    siblings: tuple[Try, ...] = ()

    def may(self, name: str) -> bool:
        return name in self.may_change

    @property
    def fraction(self) -> float:
        """As it was in effect; SGLang's usual choice where nothing tells."""
        return float(self.settings.get("mem_fraction_static") or self.failed.fraction or OPEN_FRACTION)

    @property
    def running(self) -> int | None:
        value = self.settings.get("max_running_requests")
        return int(value) if value is not None else None

    def effective(self, name: str, default: Any) -> Any:
        """A setting as asked, else as resolved, else this."""
        return self.settings.get(name) or (self.failed.resolved or {}).get(name) or default

    @property
    def margin_gib(self) -> float:
        return max(LEAST_MARGIN_GIB, MARGIN_SHARE * (self.failed.total_gib or 0.0))

    @property
    def too_small(self) -> float | None:
        """The largest fraction that was too small for the pools, among starts for as many requests as this one."""
        return max((f for f, failed in self._deaths() if failed.label in _WANTS_MORE), default=None)

    @property
    def too_large(self) -> float | None:
        """The smallest fraction that left too little beside the pools, among starts for as many requests."""
        return min((f for f, failed in self._deaths() if failed.label in _WANTS_LESS), default=None)

    def _deaths(self) -> list[tuple[float, FailedStart]]:
        """The fraction of each start, or SGLang's own minimum where it told one."""
        known = (*self.tries, *self.siblings)
        same = [t for t in known if t.settings.get("max_running_requests") == self.running]
        found = [(t.settings.get("mem_fraction_static") or t.failed.fraction, t.failed) for t in same]
        told = [(f, failed) for f, failed in found if f is not None] + [(self.fraction, self.failed)]
        return [(max(f, math.floor((failed.least_fraction or 0.0) * 100) / 100), failed) for f, failed in told]

    @property
    def last_step(self) -> float:
        """By how much the last repair moved the fraction, in vain; 0 where it did not, or the death is another."""
        if not self.tries or _family(self.tries[-1].failed.label) != _family(self.failed.label):
            return 0.0
        before = self.tries[-1].settings.get("mem_fraction_static") or self.tries[-1].failed.fraction
        return 0.0 if before is None else abs(self.fraction - before)

    @property
    def halved_in_vain(self) -> bool:
        """Whether the last repair was fewer requests, and the death is the same."""
        same = bool(self.tries) and _family(self.tries[-1].failed.label) == _family(self.failed.label)
        return same and self.tries[-1].settings.get("max_running_requests") != self.running

    @property
    def is_squeezed(self) -> bool:
        """No fraction is left between one too small for the pools and one too large for the rest."""
        low, high = self.too_small, self.too_large
        return low is not None and high is not None and high - low < SQUEEZED_WITHIN


def _family(label: Label) -> str:
    """Graphs of target and draft are one cause: after the one, the other is where the memory ends."""
    return "graphs" if label in {Label.OOM_GRAPH_TARGET, Label.OOM_GRAPH_DRAFT} else label

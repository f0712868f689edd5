"""What phases of earlier starts took; kept so that a start costs the same after five thousand as after five. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.outcome import Phase, PhaseFact
from orchestrator.sglang.options import canonical_name

if TYPE_CHECKING:
    from orchestrator.starts.start_history import PastStart

_GRAPHS = frozenset({Phase.GRAPH_TARGET, Phase.GRAPH_DRAFT})


@dataclass(frozen=True, slots=True)
class Taken:
    """In how many starts a phase was seen, and the longest of them."""

    starts: int
    longest_s: float

    def with_another(self, other: Taken) -> Taken:
        return Taken(self.starts + other.starts, max(self.longest_s, other.longest_s))


class PhaseHistory:
    """Only the longest counts, so that of all starts on as many GPUs with as many graphs one number is kept."""

    def __init__(self, past: Iterable[PastStart] = ()) -> None:
        self._taken: dict[int, dict[Phase, dict[float | None, Taken]]] = {}
        for start in past:
            self.add(start)

    def add(self, start: PastStart) -> None:
        """Learn from a start, whatever became of it."""
        graphs = graph_count(start.settings)
        of_gpus = self._taken.setdefault(start.gpu_count, {})
        for phase, seconds in phase_seconds(start.phases).items():
            seen = of_gpus.setdefault(phase, {})
            new = Taken(1, seconds)
            seen[graphs] = seen[graphs].with_another(new) if graphs in seen else new

    def taken(self, phase: Phase, settings: Mapping[str, Any], gpu_count: int) -> Taken | None:
        """What this phase took in starts on as many GPUs (if there are any, else in all), for as many graphs as now."""
        groups = [self._taken[gpu_count]] if gpu_count in self._taken else list(self._taken.values())
        graphs, found = graph_count(settings), None
        for seen in (group.get(phase, {}) for group in groups):
            for before, taken in seen.items():
                more = _more_graphs(graphs, before) if phase in _GRAPHS else 1.0
                scaled = Taken(taken.starts, taken.longest_s * more)
                found = scaled if found is None else found.with_another(scaled)
        return found


def phase_seconds(phases: Sequence[PhaseFact]) -> dict[Phase, float]:
    """How long the server was in each phase: until the next began; the last one only if it is known to have ended."""
    ordered = sorted(phases, key=lambda fact: fact.began_s)
    ends: list[float | None] = [fact.began_s for fact in ordered[1:]]
    ends.append(ordered[-1].ended_s if ordered else None)
    return {
        fact.phase: end - fact.began_s for fact, end in zip(ordered, ends, strict=False) if end is not None
    }  # the launch of a start that died at once has no end


def _more_graphs(wanted: float | None, seen: float | None) -> float:
    """How many times as many graphs are captured now, at least 1; 1 where it is not known."""
    return max(1.0, wanted / seen) if wanted and seen else 1.0


def graph_count(settings: Mapping[str, Any]) -> float | None:
    """How many batch sizes are captured for decoding; None where the settings leave it to SGLang."""
    named = {canonical_name(name): value for name, value in settings.items()}
    sizes, largest = named.get("cuda_graph_bs_decode"), named.get("cuda_graph_max_bs_decode")
    if isinstance(sizes, list | tuple) and sizes:
        return float(len(sizes))
    if not isinstance(largest, int) or largest < 1:
        return None
    # SGLang takes 1, 2, 4, 8, 12, 16, and then every eighth.
    return float(sum(size <= largest for size in (1, 2, 4, 8, 12, 16)) + max(0, (largest - 16) // 8))

"""Whether a server really speculated, as its config asked: shown by verify passes, not by flags. Pure.

A draft with another vocabulary, a wrong flag or a fallback can leave a healthy server that never speculates, and a
server may speculate by default. Either way its numbers belong to another config.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class SpeculationAsk:
    """What a config asked for. `shows`: this API and release tell verify passes wherever there are any."""

    algorithm: str | None
    depth: int
    shows: bool

    @classmethod
    def of(cls, settings: Mapping[str, Any], api: str, version: str | None) -> SpeculationAsk:
        """From the settings of a config, the API of its load and the SGLang release that served it.

        `/generate` tells verify passes per request in every release; the counter in `/metrics` came with 0.5.15.
        """
        algorithm = settings.get("speculative_algorithm")
        steps = settings.get("speculative_num_steps")
        shows = api == "generate" or _release(version) >= (0, 5, 15)
        return cls(str(algorithm) if algorithm else None, steps if isinstance(steps, int) else 0, shows)

    def __str__(self) -> str:
        if self.algorithm is None:
            return "no speculation"
        return f"{self.algorithm} with {self.depth} steps" if self.depth else self.algorithm


def _release(version: str | None) -> tuple[int, ...]:
    numbers = []
    for part in (version or "").split(".")[:3]:
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def speculation_fault(ask: SpeculationAsk, verify_passes: float | None, tokens_per_request: float) -> str | None:
    """Why the numbers are not those of the config, or None.

    `verify_passes` of the point, None where nothing told them; `tokens_per_request` is the largest answer, since the
    first token of a request needs no verify pass.
    """
    if ask.algorithm is None:
        if verify_passes:
            return f"asked for no speculation, but the server made {verify_passes:.0f} verify passes"
        return None
    if verify_passes or not ask.shows or tokens_per_request < 2:
        return None
    return f"asked for {ask}, but the server made no verify pass: it served without speculation"


def speculation_doubt(ask: SpeculationAsk, verify_passes: float | None) -> str | None:
    """What cannot be known, for a warning."""
    if ask.algorithm is None or ask.shows or verify_passes:
        return None
    return f"nothing shows whether the server speculated ({ask} was asked): load it by api generate to know"

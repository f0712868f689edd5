"""Whether a server really speculated, as its config asked: shown by verify passes, not by flags. Pure.

A draft with another vocabulary, a wrong flag or a fallback can leave a healthy server that never speculates, and a
server may speculate by default. Either way its numbers belong to another config.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.sglang.dialect import is_since


@dataclass(frozen=True, slots=True)
class SpeculationAsk:
    """What a config asked for. `shows`: this API and release tell `steps` wherever there are any.

    `steps` is what speculation is shown by: verify passes, or draft tokens of a server that counts only those.
    """

    algorithm: str | None
    depth: int
    shows: bool
    steps: str = "verify pass"
    doubt: str = "load it by api generate to know"

    @classmethod
    def of(cls, settings: Mapping[str, Any], api: str, version: str | None) -> SpeculationAsk:
        """From the settings of a config, the API of its load and the SGLang release that served it.

        `/generate` tells verify passes per request in every release; the counter in `/metrics` came with 0.5.15.
        """
        algorithm = settings.get("speculative_algorithm")
        steps = settings.get("speculative_num_steps")
        shows = api == "generate" or is_since(version, "0.5.15")
        return cls(str(algorithm) if algorithm else None, steps if isinstance(steps, int) else 0, shows)

    @classmethod
    def by_template(cls, depth: int, counted: bool, drafted: float) -> SpeculationAsk:
        """Of a server that is started by a command template; `counted`: it has a counter of drafted tokens.

        What drafts from the text may find nothing at one point: only a config that `drafted` nothing anywhere is void.
        """
        told = "give engine.counters.drafted to know" if not counted else "nothing was drafted at this point"
        return cls("drafting" if depth else None, depth, counted and not drafted, "draft token", told)

    def __str__(self) -> str:
        if self.algorithm is None:
            return "no speculation"
        if self.steps != "verify pass":
            return f"{self.algorithm} at depth {self.depth}"
        return f"{self.algorithm} with {self.depth} steps" if self.depth else self.algorithm


def speculation_fault(ask: SpeculationAsk, verify_passes: float | None, tokens_per_request: float) -> str | None:
    """Why the numbers are not those of the config, or None.

    `verify_passes` of the point, None where nothing told them; `tokens_per_request` is the largest answer, since the
    first token of a request needs no verify pass.
    """
    if ask.algorithm is None:
        if verify_passes:
            plural = "es" if ask.steps.endswith("s") else "s"
            return f"asked for no speculation, but the server made {verify_passes:.0f} {ask.steps}{plural}"
        return None
    if verify_passes or not ask.shows or tokens_per_request < 2:
        return None
    return f"asked for {ask}, but the server made no {ask.steps}: it served without speculation"


def speculation_doubt(ask: SpeculationAsk, verify_passes: float | None) -> str | None:
    """What cannot be known, for a warning."""
    if ask.algorithm is None or ask.shows or verify_passes:
        return None
    return f"nothing shows whether the server speculated ({ask} was asked): {ask.doubt}"

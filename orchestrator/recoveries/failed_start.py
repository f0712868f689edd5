"""What is known in numbers of a server that died: from its diagnosis, its phases and its log. Pure.

All memory is GiB of one GPU, the fullest where ranks differ. A number that nothing tells is None.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from actors.diagnosis.memory_figures import missing_gib, read_memory_figures
from orchestrator.outcome import Diagnosis, Label, Phase, PhaseFact

_SERVER_ARGS = re.compile(r"server_args=.*")
_GRAPH_BEGIN = re.compile(r"Capture [\w -]*?graph begin\b.*?avail mem=(?P<gib>[\d.]+) GB")
_STATES = re.compile(r"Mamba Cache is allocated|Available mamba|mamba (?:num|usage):")
_CAPTURING = re.compile(r"Capturing batches \(bs=(?P<batch>\d+)")

_CAPTURES = frozenset({Label.OOM_GRAPH_TARGET, Label.OOM_GRAPH_DRAFT})


@dataclass(frozen=True, slots=True)
class FailedStart:
    """One server that died, in numbers.

    `fraction`: mem_fraction_static as it was in effect. `wanted_gib` and `free_gib`: the allocation that failed.
    `before_load_gib`: free before any weights; what the fraction is a share of. `loaded_gib`: free once all weights
    were there. `graph_begin_gib`: free when the last capture began. `captured_batch`: largest batch with a
    graph. `least_fraction`: the smallest that SGLang says can work. `resolved`: other settings as they were in effect.
    `has_states`: the model keeps recurrent states beside its KV cache. `state_rest_gib`: what their pool and the KV
    cache had, where not one request fitted; `state_each_gib`: the states of one.
    """

    label: Label
    phase: Phase
    evidence: str
    fraction: float | None = None
    total_gib: float | None = None
    wanted_gib: float | None = None
    free_gib: float | None = None
    before_load_gib: float | None = None
    loaded_gib: float | None = None
    graph_begin_gib: float | None = None
    captured_batch: int | None = None
    least_fraction: float | None = None
    resolved: Mapping[str, float] | None = None
    has_states: bool = False
    state_rest_gib: float | None = None
    state_each_gib: float | None = None

    @property
    def short_gib(self) -> float | None:
        """What the allocation lacked; None where it is not known."""
        return missing_gib(self.wanted_gib, self.free_gib)

    @property
    def scratch_gib(self) -> float | None:
        """What the capture that failed would have taken, at least; None where it was no capture that failed."""
        if (
            self.label not in _CAPTURES
            or self.graph_begin_gib is None
            or self.wanted_gib is None
            or self.free_gib is None
        ):
            return None
        return max(0.0, self.graph_begin_gib - self.free_gib) + self.wanted_gib

    @property
    def share_of_gib(self) -> float | None:
        """GiB of which the fraction is a share; the card's total where the log does not tell what was free."""
        return self.before_load_gib or self.total_gib

    @property
    def pool_gib(self) -> float | None:
        """What the fraction left for KV cache and states; None if not known, not positive if the weights took all."""
        if self.loaded_gib is None or self.before_load_gib is None or self.fraction is None:
            return None
        return self.loaded_gib - self.before_load_gib * (1 - self.fraction)

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Self:
        return cls(**{**told, "label": Label(told["label"]), "phase": Phase(told["phase"])})


# Of what the server resolved, what a repair goes by where the setting was left open.
_GO_BY = ("mem_fraction_static", "chunked_prefill_size", "swa_full_tokens_ratio", "mamba_full_memory_ratio")


def read_failed_start(
    diagnosis: Diagnosis,
    phases: tuple[PhaseFact, ...],
    settings: Mapping[str, Any],
    *,
    log: str = "",
    account: Mapping[str, Any] | None = None,
) -> FailedStart:
    """Everything that evidence, phases, log and the server's own account (if it got that far) tell in numbers."""
    evidence = diagnosis.evidence
    told = {name: value for name in _GO_BY if isinstance(value := (account or {}).get(name), int | float)}
    told |= {name: value for name in _GO_BY if name not in told and (value := _argument(log, name)) is not None}
    fraction = settings.get("mem_fraction_static") or told.get("mem_fraction_static")
    figures = read_memory_figures(evidence)
    begun = _GRAPH_BEGIN.findall(log)
    batches = [int(n) for n in _CAPTURING.findall(log)]
    return FailedStart(
        label=diagnosis.label,
        phase=diagnosis.phase,
        evidence=evidence,
        fraction=figures.fraction if fraction is None else fraction,
        total_gib=figures.total_gib,
        wanted_gib=figures.wanted_gib,
        free_gib=figures.free_gib,
        before_load_gib=_least_free(phases, Phase.DIST_INIT),
        loaded_gib=_least_free(phases, Phase.WEIGHTS, Phase.DRAFT_WEIGHTS),
        graph_begin_gib=float(begun[-1]) if begun else None,
        captured_batch=max(batches, default=None),
        least_fraction=figures.least_fraction,
        resolved=told or None,
        has_states=_STATES.search(log) is not None,
        state_rest_gib=figures.state_rest_gib,
        state_each_gib=figures.state_each_gib,
    )


def _argument(log: str, name: str) -> float | None:
    """A number among the arguments that SGLang logs once they are resolved, as a dict or as a dataclass."""
    line = _SERVER_ARGS.search(log)
    found = re.search(rf"\b{name}['\"]?[=:] ?(-?\d+(?:\.\d+)?)", line[0]) if line else None
    if found is None:
        return None
    return float(found[1]) if "." in found[1] else int(found[1])


def _least_free(phases: tuple[PhaseFact, ...], *of: Phase) -> float | None:
    """Free memory at the end of these phases, of the fullest rank; before the weights is at the end of the init."""
    return min((p.free_gib for p in phases if p.phase in of and p.free_gib is not None), default=None)

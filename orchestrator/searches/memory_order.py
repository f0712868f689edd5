"""Which settings take more GPU memory the larger they are, and which configs need more of it than others. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.scenarios.scenario_search import Direction
from orchestrator.sglang.options import canonical_name
from orchestrator.trial import EngineConfig

# By SGLang's names. Each of these makes a pool, a state, or what a captured graph or a prefill works on larger.
DIRECTIONS: dict[str, Direction] = {
    "speculative_num_steps": "up",
    "speculative_num_draft_tokens": "up",
    "speculative_eagle_topk": "up",
    "max_running_requests": "up",
    "cuda_graph_max_bs": "up",
    "cuda_graph_max_bs_decode": "up",
    "cuda_graph_max_bs_prefill": "up",
    "max_mamba_cache_size": "up",
    "context_length": "up",
    "chunked_prefill_size": "up",
    "max_prefill_tokens": "up",
    "max_total_tokens": "up",
    # Too little leaves no KV cache, too much leaves nothing for graphs and activations.
    "mem_fraction_static": "interval",
}


def directions_with(given: Mapping[str, Direction]) -> dict[str, Direction]:
    """The table, with what a scenario says instead."""
    return {**DIRECTIONS, **{canonical_name(name): direction for name, direction in given.items()}}


def needs_more(
    config: EngineConfig, than: EngineConfig, directions: Mapping[str, Direction] = DIRECTIONS
) -> tuple[str, ...] | None:
    """The settings by which `config` surely needs more memory than `than`; None if that is not sure.

    All settings whose direction is not up or down must be equal, as must be which settings are given at all: what
    SGLang chooses for one that is left open depends on the others.
    """
    ours, theirs = config.as_dict(), than.as_dict()
    if ours.keys() != theirs.keys():
        return None
    more = []
    for name, value in ours.items():
        if value == theirs[name]:
            continue
        if not _is_more(value, theirs[name], directions.get(name, "none")):
            return None
        more.append(name)
    return tuple(more) or None


def _is_more(value: Any, other: Any, direction: Direction) -> bool:
    # Zero and below mean "off" or "as much as there is" to several options.
    if not (is_amount(value) and is_amount(other)):
        return False
    return (direction == "up" and value > other) or (direction == "down" and value < other)


def is_amount(value: Any) -> bool:
    """Whether a value is a quantity of something: a number above 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0

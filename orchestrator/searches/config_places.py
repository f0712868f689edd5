"""Where configs lie in their space: one axis for each setting in which they differ. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.trial import EngineConfig

if TYPE_CHECKING:
    from orchestrator.searches.pooled_fit import Places

# Follows from the steps where topk is 1, and from whether there are steps at all.
FOLLOWING = ("speculative_num_draft_tokens", "speculative_eagle_topk", "speculative_algorithm")


def varying(configs: Sequence[EngineConfig]) -> dict[str, list[Any]]:
    """Setting -> its value in each config; only settings that differ and that do not follow from another."""
    settings = [config.as_dict() for config in configs]
    names = sorted({name for of in settings for name in of})
    found = {name: [_value(of, name) for of in settings] for name in names}
    differing = {name: values for name, values in found.items() if len({repr(v) for v in values}) > 1}
    for name in FOLLOWING:
        rest = {n: v for n, v in differing.items() if n != name}
        if name in differing and _groups(rest) == _groups(differing):
            differing = rest
    return differing


def _groups(values: dict[str, list[Any]]) -> int:
    return len(set(zip(*(map(repr, v) for v in values.values()), strict=True)))


def _value(settings: dict[str, Any], name: str) -> Any:
    if name == "speculative_num_steps" and name not in settings and "speculative_algorithm" not in settings:
        return 0
    return settings.get(name)


def is_ordered(values: Sequence[Any]) -> bool:
    """Whether these are numbers of which some lie between others."""
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    return numbers and len(set(values)) > 2


def places_of(configs: Sequence[EngineConfig]) -> Places:
    """The places of these configs; steps on an ordered axis are counted in the settings that occur."""
    import numpy as np

    from orchestrator.searches.pooled_fit import Places

    axes = varying(configs)
    at = np.zeros((len(axes), len(configs)))
    ordered = np.zeros(len(axes), dtype=np.bool_)
    for i, values in enumerate(axes.values()):
        ordered[i] = is_ordered(values)
        steps = sorted(set(values)) if ordered[i] else list(dict.fromkeys(map(repr, values)))
        place = {step: float(k) for k, step in enumerate(steps)}
        at[i] = [place[v if ordered[i] else repr(v)] for v in values]
    return Places(tuple(config.config_id for config in configs), at, ordered)

"""What the configs of a night are called, whichever build serves them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from itertools import islice

from orchestrator.scenarios.config_label import config_labels
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.sweep_space import BuildPair, combinations, config_of
from orchestrator.sglang.options import SettingsFault

# Configs of the sweep that labels are told apart from.
_MOST_OTHERS = 100


def config_names(scenario: Scenario, pairs: Iterable[BuildPair]) -> dict[str, str]:
    """By config id (without a build): by what it differs from others of the sweep, also from those left out."""
    bases = {pair.config_id: pair.base.as_dict() for pair in pairs}
    for tried in islice(combinations(scenario.sweep), _MOST_OTHERS):
        with suppress(SettingsFault):
            other = config_of(scenario, tried)
            bases.setdefault(other.config_id, other.as_dict())
    return config_labels(bases)

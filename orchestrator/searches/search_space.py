"""A space of settings from which a search draws: listed values, ranges, and what a draw comes to. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.sweep_space import config_of, meets
from orchestrator.searches.config_places import is_ordered
from orchestrator.sglang.options import SettingsFault, canonical_name
from orchestrator.trial import EngineConfig


@dataclass(frozen=True, slots=True)
class Listed:
    """One of these values; `ordered` if they are numbers in an order that means something."""

    values: tuple[Any, ...]
    ordered: bool


@dataclass(frozen=True, slots=True)
class Between:
    """A number from `low` to `high`, both ends included; `whole`: an integer."""

    low: float
    high: float
    step: float | None
    log: bool
    whole: bool

    @property
    def steps(self) -> int:
        """How many steps fit into the range; 0 without."""
        # Shares are no binary numbers: 0.1 to 0.9 has eight steps of 0.1.
        return math.floor((self.high - self.low) / self.step + 1e-9) if self.step else 0

    def rounded(self, value: float) -> float:
        """As it is given to a server, six digits, if that is within the range still."""
        short = float(f"{value:.6g}")
        return short if self.low <= short <= self.high else value

    def values(self, most: int) -> tuple[float, ...] | None:
        """All values; None for more than `most`."""
        step = self.step or (1.0 if self.whole else None)
        if step is None or (self.high - self.low) / step >= most:
            return None
        count = math.floor((self.high - self.low) / step + 1e-9) + 1
        found = [self.low + step * i for i in range(count)]
        return tuple(int(v) if self.whole else self.rounded(v) for v in found)


@dataclass(frozen=True, slots=True)
class Space:
    """`make`: the config of a draw, or why there is none."""

    axes: dict[str, Listed | Between]
    make: Callable[[dict[str, Any]], EngineConfig | str]

    def draws(self, most: int) -> list[dict[str, Any]] | None:
        """All combinations; None for more than `most`, and where a range has no steps."""
        listed: list[tuple[Any, ...]] = []
        for axis in self.axes.values():
            values = axis.values if isinstance(axis, Listed) else axis.values(most)
            if values is None or len(values) * math.prod(map(len, listed)) > most:
                return None
            listed.append(values)
        return [dict(zip(self.axes, values, strict=True)) for values in product(*listed)]


def search_space(scenario: Scenario) -> Space:
    """Axes of the sweep and ranges of the search. A draw that SGLang would refuse or that is excluded has no config."""

    def make(draw: dict[str, Any]) -> EngineConfig | str:
        if any(meets(draw, condition) for condition in scenario.sweep.exclude):
            return "is excluded"
        try:
            return config_of(scenario, draw)
        except SettingsFault as fault:
            return str(fault)

    axes: dict[str, Listed | Between] = {
        name: Listed(tuple(sorted(values) if is_ordered(values) else values), is_ordered(values))
        for name, values in scenario.sweep.axes.items()
    }
    for name, of in scenario.search.space.items():
        whole = all(float(bound).is_integer() for bound in (of.low, of.high, of.step or 1.0))
        # A logarithmic range of whole bounds is one of whole numbers only where the setting is: 0 to 1 is a share.
        axes[name] = Between(of.low, of.high, of.step, of.log, whole and of.high > 1)
    return Space(axes, make)


def draw_of(config: EngineConfig, space: Space) -> dict[str, Any] | None:
    """The draw that comes to this config, None if none does."""
    settings = config.as_dict()
    draw: dict[str, Any] = {}
    for name, axis in space.axes.items():
        value = settings.get(canonical_name(name))
        if value is None and canonical_name(name) == "speculative_num_steps":
            value = 0
        if isinstance(axis, Listed):
            value = next((v for v in axis.values if v == value), axis.values[0] if value is None else None)
        if value is None:
            return None
        draw[name] = value
    return draw if space.make(draw) == config else None

"""Sweep -> the combinations of settings to try. Pure."""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.scenarios.command_template import command_settings, render
from orchestrator.scenarios.config_env import is_variable, split_environment, variable_text
from orchestrator.scenarios.engine_build import BUILDS, of_build
from orchestrator.scenarios.scenario import Scenario, Sweep
from orchestrator.scenarios.settings import ServerSize, resolve_settings
from orchestrator.scenarios.workload_traffic import is_open_loop
from orchestrator.sglang.gpu_arch import arch_of_products
from orchestrator.sglang.options import SettingsFault, canonical_name
from orchestrator.trial import EngineConfig, freeze_settings

_COMPARISON = re.compile(r"^\s*(<=|>=|==|!=|<|>)\s*(-?\d+(?:\.\d+)?(?:e-?\d+)?)\s*$")
_OPERATORS = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "==": operator.eq,
    "!=": operator.ne,
}


def expand(scenario: Scenario) -> Iterator[EngineConfig]:
    """Every distinct config of the sweep, in the order it is written; SettingsFault for one that cannot be served.

    Two combinations that come to the same settings are one config (their content hash is the same). Of a space that is
    drawn from (search optuna) those that cannot be served are no part.
    """
    if scenario.search.method == "pairs":
        yield from dict.fromkeys(config for pair in build_pairs(scenario) for config in pair.members)
        return
    seen: set[EngineConfig] = set()
    for tried in combinations(scenario.sweep):
        try:
            config = config_of(scenario, tried)
        except SettingsFault:
            if scenario.search.method == "optuna":
                continue
            raise
        if config not in seen:
            seen.add(config)
            yield config


@dataclass(frozen=True, slots=True)
class BuildPair:
    """One config as both builds serve it; `base` is the config as it is without a build."""

    base: EngineConfig
    reference: EngineConfig
    candidate: EngineConfig

    @property
    def config_id(self) -> str:
        """Of the config without a build."""
        return self.base.config_id

    @property
    def members(self) -> tuple[EngineConfig, EngineConfig]:
        return self.reference, self.candidate


def build_pairs(scenario: Scenario) -> tuple[BuildPair, ...]:
    """The configs of a night, each as the scenario's two builds serve it; SettingsFault for one that cannot be."""
    assert scenario.nightly is not None, "checked with the scenario"
    wanted = scenario.nightly.configs
    tried = wanted if isinstance(wanted, list) else combinations(scenario.sweep)
    found: dict[str, BuildPair] = {}
    for settings in itertools.islice(tried, 1 if wanted == "first" else None):
        base = config_of(scenario, dict(settings))
        reference, candidate = (
            replace(config_of(of_build(scenario, build), dict(settings)), build=build) for build in BUILDS
        )
        found.setdefault(base.config_id, BuildPair(base, reference, candidate))
    return tuple(found.values())


def config_of(scenario: Scenario, tried: dict[str, Any]) -> EngineConfig:
    """The config of one combination of what is varied; SettingsFault if it cannot be served."""
    combination, variables = split_environment(tried)
    env = tuple(sorted({**scenario.engine.env, **variables}.items()))
    return EngineConfig(freeze_settings(_settings(scenario, combination)), env)


def _settings(scenario: Scenario, combination: dict[str, Any]) -> dict[str, Any]:
    """The settings of one config; what SGLang needs besides is no business of other servers."""
    engine, base = scenario.engine, dict(scenario.engine.settings)
    if engine.kind == "command":
        settings = command_settings(engine, {**base, **combination})
        render(engine, scenario.model, settings)  # for what it refuses
        return settings
    base.setdefault("max_running_requests", default_running_requests(scenario))
    return resolve_settings(
        base,
        combination,
        draft_path=scenario.model.draft_path,
        bundled_draft=scenario.model.bundled_draft,
        size=ServerSize(scenario.slots.gpus if engine.kind != "attach" else 0, scenario.slots.nnodes),
        version=engine.version,
        arch=arch_of_products(scenario.slots.accelerators),
    )


def default_running_requests(scenario: Scenario) -> int:
    """Enough for every load level: left open, SGLang caps it at 48 for speculation only, which is unfair."""
    levels = [level for workload in scenario.workloads for level in workload.concurrency]
    if any(map(is_open_loop, scenario.workloads)):
        levels.append(256)
    return max([48, *levels])


def combinations(sweep: Sweep) -> Iterator[dict[str, Any]]:
    """Axes x zipped axes x configs, less the excluded, plus the included. An empty sweep is one combination."""
    axes: list[list[dict[str, Any]]] = [[{name: v} for v in values] for name, values in sweep.axes.items()]
    for group in sweep.zip:
        axes.append([dict(zip(group, row, strict=True)) for row in zip(*group.values(), strict=True)])
    if sweep.configs:
        axes.append([dict(config) for config in sweep.configs])
    only_included = bool(sweep.include) and not axes
    for parts in [] if only_included else itertools.product(*axes):
        combination = {k: v for part in parts for k, v in part.items()}
        if not any(meets(combination, condition) for condition in sweep.exclude):
            yield combination
    yield from (dict(config) for config in sweep.include)


def meets(combination: dict[str, Any], condition: dict[str, Any]) -> bool:
    """Whether a combination meets all entries of a condition; a setting it does not have meets none."""
    named = {canonical_name(k): v for k, v in combination.items()}
    return all(
        canonical_name(name) in named and _meets_one(*_comparable(name, named[canonical_name(name)], wanted))
        for name, wanted in condition.items()
    )


def _comparable(name: str, value: Any, wanted: Any) -> tuple[Any, Any]:
    """Variables are texts, so `1` meets `"1"`; they are compared as numbers where they are numbers."""
    if not is_variable(name):
        return value, wanted
    if isinstance(wanted, str) and is_comparison(wanted):
        return _number(variable_text(value)), wanted
    return variable_text(value), [variable_text(w) for w in (wanted if isinstance(wanted, list) else [wanted])]


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def is_comparison(text: str) -> bool:
    """Whether a text is a comparison such as `>= 8`."""
    return _COMPARISON.match(text) is not None


def _meets_one(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, list):
        return any(_meets_one(value, w) for w in wanted)
    comparison = _COMPARISON.match(wanted) if isinstance(wanted, str) else None
    if comparison and isinstance(value, int | float):
        return bool(_OPERATORS[comparison[1]](value, float(comparison[2])))
    return bool(value == wanted)

"""Settings and sweep of a scenario: names that must exist, values that they take, axes that fit together. Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from orchestrator.scenarios.command_template import command_setting_fault
from orchestrator.scenarios.config_env import is_variable, variable_fault, variable_text
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.sweep_space import is_comparison
from orchestrator.sglang.dialect import setting_fault
from orchestrator.sglang.options import canonical_name, did_you_mean

Fault = tuple[tuple[str | int, ...], str]
SettingJudge = Callable[[str, object], str | None]


def check_setting_names(scenario: Scenario) -> Fault | None:
    judge = setting_judge(scenario)
    for name, value in scenario.engine.settings.items():
        fault = "belongs into engine.env" if is_variable(name) else judge(name, value)
        if fault:
            return ("engine", "settings", name), fault
    groups: list[tuple[tuple[str | int, ...], dict[str, list[Any]]]] = [(("sweep", "axes"), scenario.sweep.axes)]
    groups += [(("sweep", "zip", i), group) for i, group in enumerate(scenario.sweep.zip)]
    for path, group in groups:
        fault_in_group = _check_axes(path, group, judge)
        if fault_in_group:
            return fault_in_group
    for part in ("configs", "include"):
        for i, config in enumerate(getattr(scenario.sweep, part)):
            for name, value in config.items():
                fault = judge(name, value)
                if fault:
                    return ("sweep", part, i, name), fault
    return _check_axis_twice(groups)


def setting_judge(scenario: Scenario) -> SettingJudge:
    """Says why a setting cannot be given to this kind of server, or None."""
    engine = scenario.engine
    if engine.kind == "command":
        return partial(_fault_of, partial(command_setting_fault, engine))
    return partial(_fault_of, partial(setting_fault, version=engine.version))


def _fault_of(judge: SettingJudge, name: str, value: Any) -> str | None:
    return variable_fault(name, value) if is_variable(name) else judge(name, value)


def _check_axes(path: tuple[str | int, ...], group: dict[str, list[Any]], judge: SettingJudge) -> Fault | None:
    for name, values in group.items():
        if not values:
            return (*path, name), "is an empty axis; give at least one value, or leave it out"
        for i, value in enumerate(values):
            fault = judge(name, value)
            if fault:
                return (*path, name, i), fault
            if is_variable(name) and variable_text(value) in map(variable_text, values[:i]):
                return (*path, name, i), f"has {variable_text(value)!r} twice"
            if value in values[:i] and any(value == v and type(value) is type(v) for v in values[:i]):
                return (*path, name, i), f"has {value!r} twice"
    return None


def _check_axis_twice(groups: list[tuple[tuple[str | int, ...], dict[str, list[Any]]]]) -> Fault | None:
    seen: dict[str, str] = {}
    for path, group in groups:
        for name in group:
            canonical = canonical_name(name)
            if canonical in seen:
                return (*path, name), f"is varied twice (also as '{seen[canonical]}')"
            seen[canonical] = name
    return None


def check_zip(scenario: Scenario) -> Fault | None:
    for i, group in enumerate(scenario.sweep.zip):
        lengths = {name: len(values) for name, values in group.items()}
        if len(set(lengths.values())) > 1:
            shown = ", ".join(f"{name} {n}" for name, n in lengths.items())
            return ("sweep", "zip", i), f"has lists of different lengths: {shown}"
    return None


def check_exclude(scenario: Scenario) -> Fault | None:
    varied = {canonical_name(n) for n in scenario.sweep.axes}
    varied |= {canonical_name(n) for group in scenario.sweep.zip for n in group}
    varied |= {canonical_name(n) for config in scenario.sweep.configs for n in config}
    for i, condition in enumerate(scenario.sweep.exclude):
        for name, wanted in condition.items():
            path = ("sweep", "exclude", i, name)
            if canonical_name(name) not in varied:
                return path, f"is not varied by this sweep{did_you_mean(canonical_name(name), sorted(varied))}"
            values = wanted if isinstance(wanted, list) else [wanted]
            if any(isinstance(v, str) and v.strip()[:1] in tuple("<>=!") and not is_comparison(v) for v in values):
                return path, f'is {wanted!r}; write a value, a list of values, or a comparison such as ">= 8"'
    return None

"""From a run to the scenario that measures its winner again, beside its rivals and what the user serves with now. Pure.

An ordinary scenario: the configs as they served, the workloads and levels that the objective looks at, and repeats.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from orchestrator.errors import BadInput
from orchestrator.objectives.aim import is_fact
from orchestrator.objectives.scenario_objective import Objective
from orchestrator.points.metric_names import WORKLOAD_METRICS
from orchestrator.scenarios.config_env import PREFIX
from orchestrator.scenarios.scenario import Scenario
from orchestrator.searches.point_need import goal_of
from orchestrator.sglang.options import OWNED
from orchestrator.trial import SECRET_NAME, LoadLevel

_LEVELS = {"concurrency": "concurrency", "rates": "rate", "trace": "trace"}


def verify_tree(
    scenario: Scenario, objective: Objective, configs: Sequence[Mapping[str, Any]], repeats: int
) -> dict[str, Any]:
    """The scenario as a YAML tree. `configs` are settings as they served, variables as `env.NAME`."""
    # Some keys are refused where they do not belong, even with their default value.
    tree: dict[str, Any] = scenario.model_dump(mode="json", exclude_defaults=True)
    tree["name"] = f"{scenario.name[:57]}-verify"
    tree["description"] = f"Head to head: the winner of objective {objective.name} of {scenario.name}, and its rivals."
    tree.setdefault("engine", {})["settings"] = {}
    tree["sweep"] = {"include": [_included(scenario, config) for config in configs],
                     "skip_hopeless": scenario.sweep.skip_hopeless}  # fmt: skip
    tree["objectives"] = [objective.model_dump(mode="json", exclude_defaults=True) | {"preset": None}]
    tree["search"] = "grid"
    # Each config is measured on each host anyway; a reference might not even be valid without engine.settings.
    tree["measure"] |= {"repeats": repeats, "profile": None, "reference": "off"}
    tree.pop("pareto", None)
    tree.pop("nightly", None)
    wanted = looked_at(scenario, objective)
    tree["workloads"] = [w for told in tree["workloads"] if (w := _only(told, wanted)) is not None]
    return tree


def looked_at(scenario: Scenario, objective: Objective) -> frozenset[tuple[str, LoadLevel | None]]:
    """(workload, level) of all that the objective, its limits and its tie-breakers look at; the level is None for what
    is of a whole workload, such as its highest rate.
    """
    goal = goal_of(objective, objective.workload or scenario.workloads[0].name)
    found: set[tuple[str, LoadLevel | None]] = set()
    for seen in (goal.aim, *(gate.aim for gate in goal.gates), *goal.ties):
        for reading in seen.readings:
            level = None if is_fact(reading.metric) else reading.level or seen.level
            if level is not None or reading.metric in WORKLOAD_METRICS:
                found.add((reading.workload or seen.workload, level))
    return frozenset(found)


def _only(workload: dict[str, Any], wanted: frozenset[tuple[str, LoadLevel | None]]) -> dict[str, Any] | None:
    """The workload with the wanted levels; None if it has none of them."""
    kept: dict[str, Any] = {
        key: [v for v in workload.get(key, ()) if (workload["name"], LoadLevel(kind, float(v))) in wanted]  # type: ignore[arg-type]
        for key, kind in _LEVELS.items()
    }
    is_whole = (workload["name"], None) in wanted
    kept |= {} if is_whole else {"max_rate": None}
    return {**workload, **kept} if is_whole or any(kept.values()) else None


def _included(scenario: Scenario, config: Mapping[str, Any]) -> dict[str, Any]:
    """Variables that all configs share come from engine.env, which alone may hold secrets."""
    shared = scenario.engine.env

    def is_own(name: str, value: Any) -> bool:
        variable = name.removeprefix(PREFIX)
        return not name.startswith(PREFIX) or not (SECRET_NAME.search(variable) or shared.get(variable) == value)

    return {name: value for name, value in config.items() if is_own(name, value)}


def present_settings(text: str) -> dict[str, Any]:
    """Settings from `name=value name=value`, or from the text of a YAML mapping (a --config file of SGLang is one).

    BadInput for what is neither.
    """
    try:
        told = yaml.safe_load(text) if "\n" in text or ":" in text.partition("=")[0] else None
    except yaml.YAMLError:
        raise BadInput(
            "--present: is neither NAME=VALUE words nor a YAML file of settings; write e.g. 'tp_size=4'"
        ) from None
    if isinstance(told, dict):
        return {str(name).removeprefix("--").replace("-", "_"): _number(value) for name, value in told.items()}
    settings = {}
    for word in _words(text):
        name, equals, value = word.removeprefix("--").partition("=")
        if not equals or not name:
            raise BadInput(
                f"--present: {word!r} is neither NAME=VALUE nor a file; write e.g. 'mem_fraction_static=0.8 tp_size=4'"
            )
        try:
            settings[name.replace("-", "_")] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise BadInput(f"--present: {word!r}: the value cannot be read; quote it: {name}='\"...\"'") from None
    if not settings:
        raise BadInput("--present: names no setting; write e.g. 'speculative_num_steps=3 tp_size=4'")
    return settings


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise BadInput(f"--present: {text!r}: {error}") from None


def _number(value: Any) -> Any:
    """A file for `--config` may quote its numbers."""
    plain = yaml.safe_load(value) if isinstance(value, str) and re.fullmatch(r"[-+.0-9e]+", value) else value
    return plain if isinstance(plain, int | float) else value


def swept_settings(scenario: Scenario, present: Mapping[str, Any]) -> dict[str, Any]:
    """Without what Specsweep sets itself (address, model, metrics, keys); BadInput for another model or span."""
    own = {"model_path": scenario.model.path, "nnodes": scenario.slots.nnodes}
    for name, wanted in own.items():
        if present.get(name, wanted) != wanted:
            raise BadInput(
                f"--present: {name} is {present[name]!r}, but the run measured {wanted!r}; "
                "leave it out, or measure that first"
            )
    return {name: value for name, value in present.items() if name not in OWNED}

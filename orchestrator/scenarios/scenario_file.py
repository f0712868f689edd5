"""Scenario file -> validated Scenario, or one ScenarioError with file, line, key and what would be right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from orchestrator.errors import BadInput
from orchestrator.paths import user_file
from orchestrator.scenarios.model_fault import first_fault
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_check import check_scenario
from orchestrator.scenarios.yaml_tree import Path as KeyPath
from orchestrator.scenarios.yaml_tree import YamlTree, parse_yaml


def load_scenario(path: Path, overrides: tuple[str, ...] = ()) -> Scenario:
    """Read and check a scenario file, with `--set KEY=VALUE` overrides applied before the check.

    Raises ScenarioError (one fault, the first by line) or BadInput; nothing has been started then.
    """
    return scenario_from_tree(_with_overrides(read_tree(path), overrides))


def read_tree(path: Path) -> YamlTree:
    """The YAML tree of a file; BadInput if there is no such file."""
    if path.is_dir():
        raise BadInput(f"{path}: is a folder; give a scenario file (*.yaml)")
    with user_file(str(path), "read", absent="no such scenario file"):
        data = path.read_bytes()
    return parse_yaml(data, str(path))


def scenario_from_tree(tree: YamlTree) -> Scenario:
    """Validate a tree; the first fault by line becomes a ScenarioError."""
    try:
        scenario = Scenario.model_validate(tree.value)
    except ValidationError as error:
        raise first_fault(tree, error, Scenario) from None
    fault = check_scenario(scenario)
    if fault:
        path, message = fault
        raise tree.fault(path, message)
    return scenario


def _with_overrides(tree: YamlTree, overrides: tuple[str, ...]) -> YamlTree:
    for override in overrides:
        key, separator, text = override.partition("=")
        if not separator or not key:
            raise BadInput(f"--set {override}: write KEY=VALUE, e.g. --set measure.repeats=3")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            raise BadInput(f"--set {override}: the value is not valid YAML; quote it: 'KEY=\"...\"'") from None
        tree.overridden.add(_assign(tree, override, key.split("."), value))
    return tree


def _assign(tree: YamlTree, override: str, parts: list[str], value: Any) -> KeyPath:
    """Put a value at a dotted path, which is returned; keys that do not exist yet are made, and checked with the whole
    scenario.
    """
    place, path = tree.value, list[str | int]()
    for i, part in enumerate(parts):
        if not isinstance(place, dict | list):
            raise BadInput(f"--set {override}: '{'.'.join(parts[:i])}' is a value, not a mapping")
        key: Any = _index(override, parts[: i + 1], place) if isinstance(place, list) else part
        path.append(key)
        if i == len(parts) - 1:
            place[key] = value
        else:
            place = place[key] if isinstance(place, list) else place.setdefault(key, {})
    return tuple(path)


def _index(override: str, parts: list[str], place: list[Any]) -> int:
    if parts[-1].isdigit() and int(parts[-1]) < len(place):
        return int(parts[-1])
    above = ".".join(parts[:-1])
    raise BadInput(f"--set {override}: '{above}' is a list; give an index from 0 to {len(place) - 1}")

"""Scenario file -> validated Scenario, or one ScenarioError with file, line, key and what would be right."""

from __future__ import annotations

import types
import typing
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from orchestrator.errors import BadInput, ScenarioError
from orchestrator.options import nearest
from orchestrator.scenario import Scenario
from orchestrator.scenario_check import check_scenario
from orchestrator.yaml_tree import Path as KeyPath
from orchestrator.yaml_tree import YamlTree, dotted, parse_yaml


def load_scenario(path: Path, overrides: tuple[str, ...] = ()) -> Scenario:
    """Read and check a scenario file, with `--set KEY=VALUE` overrides applied before the check.

    Raises ScenarioError (one fault, the first by line) or BadInput; nothing has been started then.
    """
    return scenario_from_tree(_with_overrides(read_tree(path), overrides))


def read_tree(path: Path) -> YamlTree:
    """The YAML tree of a file; BadInput if there is no such file."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise BadInput(f"{path}: no such scenario file") from None
    except IsADirectoryError:
        raise BadInput(f"{path}: is a folder; give a scenario file (*.yaml)") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from None
    return parse_yaml(data, str(path))


def scenario_from_tree(tree: YamlTree) -> Scenario:
    """Validate a tree; the first fault by line becomes a ScenarioError."""
    try:
        scenario = Scenario.model_validate(tree.value)
    except ValidationError as error:
        raise _first_fault(tree, error) from None
    fault = check_scenario(scenario)
    if fault:
        path, message = fault
        raise ScenarioError(tree.file, tree.line_of(path), dotted(path), message)
    return scenario


def _with_overrides(tree: YamlTree, overrides: tuple[str, ...]) -> YamlTree:
    for override in overrides:
        key, separator, text = override.partition("=")
        if not separator or not key:
            raise BadInput(f"--set {override}: write KEY=VALUE, e.g. --set measure.repeats=3")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            raise BadInput(f"--set {override}: the value is not valid YAML") from None
        _assign(tree, override, key.split("."), value)
    return tree


def _assign(tree: YamlTree, override: str, parts: list[str], value: Any) -> None:
    """Put a value at a dotted path; keys that do not exist yet are made, and checked with the whole scenario."""
    place = tree.value
    for i, part in enumerate(parts[:-1]):
        if isinstance(place, list):
            place = place[_index(override, parts[: i + 1], place)]
        elif isinstance(place, dict):
            place = place.setdefault(part, {})
        else:
            raise BadInput(f"--set {override}: '{'.'.join(parts[:i])}' is a value, not a mapping")
    if isinstance(place, list):
        place[_index(override, parts, place)] = value
    elif isinstance(place, dict):
        place[parts[-1]] = value
    else:
        raise BadInput(f"--set {override}: '{'.'.join(parts[:-1])}' is a value, not a mapping")


def _index(override: str, parts: list[str], place: list[Any]) -> int:
    if parts[-1].isdigit() and int(parts[-1]) < len(place):
        return int(parts[-1])
    above = ".".join(parts[:-1])
    raise BadInput(f"--set {override}: '{above}' is a list; give an index from 0 to {len(place) - 1}")


def _first_fault(tree: YamlTree, error: ValidationError) -> ScenarioError:
    faults = []
    for detail in error.errors(include_url=False):
        path = _key_path(tree.value, detail["loc"])
        line = tree.line_of(path)
        # A misspelt key is also a missing one: the misspelling is what to tell.
        order = (detail["type"] == "missing", line or 0)
        faults.append((order, ScenarioError(tree.file, line, dotted(path), _message(detail, path))))
    faults.sort(key=lambda fault: fault[0])
    return faults[0][1]


def _key_path(value: Any, loc: tuple[int | str, ...]) -> KeyPath:
    """The part of a pydantic location that is really in the file (it adds names of union members)."""
    path: KeyPath = ()
    for i, part in enumerate(loc):
        in_list = isinstance(value, list) and isinstance(part, int) and part < len(value)
        if in_list or (isinstance(value, dict) and part in value):
            value, path = value[part], (*path, part)
        elif i == len(loc) - 1 and isinstance(value, dict):
            path = (*path, part)  # a required key that is not there
    return path


def _message(detail: Any, path: KeyPath) -> str:
    kind, given = detail["type"], detail.get("input")
    if kind == "extra_forbidden":
        fields = _fields_at(path[:-1])
        hint = nearest(str(path[-1]), fields)
        meant = f"; did you mean '{hint}'?" if hint else ""
        return f"is not a key here{meant} Allowed: {', '.join(fields)}"
    if kind == "missing":
        return "is missing"
    shown = repr(given) if isinstance(given, str | int | float | bool | None) else f"a {type(given).__name__}"
    if kind == "literal_error":
        return f"is {shown}, allowed: {detail['ctx']['expected']}"
    text = detail["msg"]
    return f"{text[0].lower()}{text[1:]}, not {shown}" if "Input should" in text else f"{text} (given: {shown})"


def _fields_at(path: KeyPath) -> list[str]:
    model: Any = Scenario
    for part in path:
        if isinstance(part, str) and isinstance(model, type) and issubclass(model, BaseModel):
            model = _model_in(model.model_fields[part].annotation)
    return list(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else []


def _model_in(annotation: Any) -> Any:
    """The model class inside `list[X]`, `X | None` and the like."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if typing.get_origin(annotation) in {list, typing.Union, types.UnionType}:
        inner = [_model_in(a) for a in typing.get_args(annotation)]
        return next((m for m in inner if m is not None), None)
    return None

"""From pydantic's errors to one fault with file, line, key and what would be right. Pure."""

from __future__ import annotations

import re
import types
import typing
from typing import Any

from pydantic import BaseModel, ValidationError

from orchestrator.errors import ScenarioError
from orchestrator.scenarios.yaml_tree import Path as KeyPath
from orchestrator.scenarios.yaml_tree import YamlTree
from orchestrator.sglang.options import did_you_mean

_NUMBERS = frozenset({"float_type", "int_type"})
_WITH_UNIT = re.compile(r"(-?[\d.]*\d)\s*(%|[A-Za-z]+)")


def first_fault(tree: YamlTree, error: ValidationError, model: type[BaseModel]) -> ScenarioError:
    """The first fault by line of a tree that does not fit the model."""
    return all_faults(tree, error, model)[0]


def all_faults(tree: YamlTree, error: ValidationError, model: type[BaseModel]) -> list[ScenarioError]:
    """All faults by line of a tree that does not fit the model, what is missing last."""
    faults = []
    for detail in error.errors(include_url=False):
        path = _key_path(tree.value, detail["loc"], missing=detail["type"] == "missing")
        fault = tree.fault(path, _message(detail, path, model))
        # A misspelt key is also a missing one: the misspelling is what to tell.
        faults.append(((detail["type"] == "missing", fault.line or 0), fault))
    faults.sort(key=lambda fault: fault[0])
    return [fault for _, fault in faults]


def _key_path(value: Any, loc: tuple[int | str, ...], *, missing: bool) -> KeyPath:
    """The part of a pydantic location that is really in the file (it adds names of union members)."""
    path: KeyPath = ()
    for i, part in enumerate(loc):
        in_list = isinstance(value, list) and isinstance(part, int) and part < len(value)
        if in_list or (isinstance(value, dict) and part in value):
            value, path = value[part], (*path, part)
        elif missing and i == len(loc) - 1 and isinstance(part, str):
            path = (*path, part)
    return path


def _message(detail: Any, path: KeyPath, model: type[BaseModel]) -> str:
    kind, given = detail["type"], detail.get("input")
    if kind == "extra_forbidden":
        fields = _fields_at(model, detail["loc"][:-1])
        meant = did_you_mean(str(path[-1]), fields)
        return f"is not a key here{meant or '.'} Allowed: {', '.join(fields)}"
    if kind == "missing":
        return "is missing"
    shown = repr(given) if isinstance(given, str | int | float | bool | None) else f"a {type(given).__name__}"
    if kind == "literal_error":
        return f"is {shown}, allowed: {detail['ctx']['expected']}"
    if kind == "value_error":
        return str(detail["ctx"]["error"])
    if kind in {"model_type", "dict_type"}:
        return f"must be a mapping of keys, not {'empty' if given is None else shown}"
    text, hint = detail["msg"], _plain_number(given) if kind in _NUMBERS else ""
    told = f"{text[0].lower()}{text[1:]}, not {shown}" if "Input should" in text else f"{text} (given: {shown})"
    return told + hint


def _plain_number(given: Any) -> str:
    """What to write instead of a number with a unit; empty for anything else."""
    found = _WITH_UNIT.fullmatch(given.strip()) if isinstance(given, str) else None
    if found is None:
        return ""
    if found[2] == "%":
        return "; write a share, like 0.05 for 5%"
    return f"; write a number alone, like {found[1]}, in the unit that the key's name ends in"


def _fields_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """The keys of the model at a location. Members of a union are told apart by their class name, as their tag."""
    models: list[type[BaseModel]] = [model]
    for part in loc:
        named = [m for m in models if m.__name__ == part]
        if named:
            models = named
        elif isinstance(part, str) and (inner := [m.model_fields[part] for m in models if part in m.model_fields]):
            models = _models_in(inner[0].annotation)
    return list(models[0].model_fields) if models else []


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    """The model classes inside `list[X]`, `tuple[X, ...]`, `X | None`, `Annotated[X, ...]` and the like."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if typing.get_origin(annotation) in {list, tuple, typing.Union, types.UnionType, typing.Annotated}:
        return [model for inner in typing.get_args(annotation) for model in _models_in(inner)]
    return []

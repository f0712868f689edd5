"""Settings named `env.NAME`: variables of the server's environment, varied like any other setting. Pure."""

from __future__ import annotations

import re
from typing import Any

from orchestrator.trial import SECRET_NAME

PREFIX = "env."

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = re.compile(r"SPECSWEEP_|CUDA_VISIBLE_DEVICES$")


def is_variable(name: str) -> bool:
    """Whether a setting is a variable of the environment."""
    return name.startswith(PREFIX)


def variable_text(value: Any) -> str:
    """A value as the server finds it in its environment: 1 is `1`, 0.5 is `0.5`."""
    return value if isinstance(value, str) else repr(value)


def variable_fault(name: str, value: Any) -> str | None:
    """Why a variable cannot be varied like this."""
    variable = name.removeprefix(PREFIX)
    if not _NAME.fullmatch(variable):
        return f"is not a variable: '{variable}' must be letters, digits and underscores, and begin with no digit"
    if _RESERVED.match(variable):
        return "is not yours to set: Specsweep sets it for each server"
    if SECRET_NAME.search(variable):
        return "is named like a secret; its values are stored nowhere, so configs could not be told apart by it"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return f'takes text or a number, not {value!r} (write "1" or "true" for a switch, as the server wants it)'
    if isinstance(value, str) and "\0" in value:
        return "has a zero byte, which no environment can hold"
    return None


def split_environment(combination: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The settings of a combination, and its variables by their own names."""
    settings = {name: value for name, value in combination.items() if not is_variable(name)}
    variables = {
        name.removeprefix(PREFIX): variable_text(value) for name, value in combination.items() if is_variable(name)
    }
    return settings, variables

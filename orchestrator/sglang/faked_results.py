"""Environment variables by which a server makes up what is measured; refused unless the scenario allows them. Pure.

Source: `environ.py` of SGLang 0.5.9 to 0.5.23 (the first two exist in all of them).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

_ACCEPTANCE = "the acceptance of drafts, and with it every speed"
_ROUTING = "the routing to experts"
FAKING: dict[str, str] = {
    "SGLANG_SIMULATE_ACC_LEN": _ACCEPTANCE,
    "SGLANG_SIMULATE_ACC_METHOD": _ACCEPTANCE,
    "SGLANG_SIMULATE_ACC_TOKEN_MODE": _ACCEPTANCE,
    "SGLANG_SIMULATE_ACC_GREEDY": _ACCEPTANCE,
    "SGLANG_DSPARK_SIMULATE_FOLD": _ACCEPTANCE,
    "SGLANG_SIMULATE_UNIFORM_EXPERTS": _ROUTING,
    "SGLANG_SIMULATE_ROUND_ROBIN_EXPERTS": _ROUTING,
    "SGLANG_DEBUG_HISPARSE_SKIP_IO": "the cost of reading the KV cache from the host (and the output)",
}
_OFF = frozenset({"", "0", "false", "no", "n", "off"})
# `NAME=value` wherever it stands in a word: `env NAME=v`, `-e NAME=v`, `-eNAME=v`, `--env=NAME=v`, `sh -c "NAME=v .."`.
_GIVEN = re.compile(rf"(?:^-e|(?<![A-Za-z0-9_]))({'|'.join(FAKING)})=['\"]?([^\s'\";]*)")


def is_faking(name: str, value: str) -> bool:
    """Whether a variable of this value makes results up; one that is switched off does not."""
    if name not in FAKING:
        return False
    if name == "SGLANG_SIMULATE_ACC_LEN":
        try:
            return float(value) > 0
        except ValueError:
            return value.strip() != ""
    return value.strip().lower() not in _OFF


def refusal(name: str) -> str:
    """Why a variable is refused, and how to allow it."""
    return f"{name} makes up {FAKING[name]}: unset it, or name it in engine.allow_faked"


def faked_in_env(env: Mapping[str, str], allowed: Collection[str] = ()) -> str | None:
    """The first variable of an environment that makes results up and is not allowed."""
    return next((n for n in FAKING if n in env and n not in allowed and is_faking(n, str(env[n]))), None)


def faked_in_words(words: Iterable[str], allowed: Collection[str] = ()) -> tuple[int, str] | None:
    """The first word of a command line that sets such a variable: its index and the variable."""
    for index, word in enumerate(words):
        for name, value in _GIVEN.findall(word):
            if name not in allowed and is_faking(name, value):
                return index, name
    return None


def faked_in_account(account: Any, allowed: Collection[str] = ()) -> str | None:
    """The first such variable in a server's account of itself (`env_vars`, which it gives only if told to)."""
    if isinstance(account, Mapping):
        env = account.get("env_vars")
        if isinstance(env, Mapping) and (found := faked_in_env(env, allowed)):
            return found
        inner: Iterable[Any] = account.values()
    else:
        inner = account if isinstance(account, list | tuple) else ()
    return next((found for item in inner if (found := faked_in_account(item, allowed))), None)

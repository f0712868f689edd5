"""One command of a cluster file -> what it tells `ray start`: environment, limits, options. Pure.

Each command of a cluster file runs in a login shell of its own, so only what stands in the same command as `ray start`
counts for it.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePath

_ASSIGNMENT = re.compile(r"^([A-Za-z_]\w*)=(.*)$", re.DOTALL)
_LIMIT = re.compile(r"^-[SH]*n$")
_WRAPPERS = frozenset({"env", "exec", "nohup", "sudo", "nice", "setsid"})
# What may set the environment where it cannot be seen.
_SOURCES = frozenset({"source", ".", "systemctl"})


@dataclass(frozen=True, slots=True)
class RayStart:
    """`env` reaches the raylet, `open_files` is `ulimit -n` before it, None if not set; `options` without dashes.

    `sourced` is the file or program that may set more where it cannot be seen.
    """

    env: dict[str, str] = field(default_factory=dict)
    open_files: int | None = None
    options: dict[str, str] = field(default_factory=dict)
    sourced: str | None = None


def ray_start_in(command: str) -> RayStart | None:
    """The `ray start` in a command; None if there is none, or the shell could not read it."""
    env: dict[str, str] = {}
    open_files: int | None = None
    sourced: str | None = None
    for words in _simple_commands(command):
        own, rest = _leading_assignments(words)
        name = _program(rest)
        if name == "export":
            env |= dict(_assignments(rest[1:]))
        elif name == "ulimit":
            open_files = _open_files(rest[1:], open_files)
        elif name in _SOURCES:
            sourced = " ".join(rest[:2])
        elif name == "ray" and rest[1:2] == ["start"]:
            return RayStart({**env, **own}, open_files, _options(rest[2:]), sourced)
    return None


def sources_in(command: str) -> str | None:
    """A program in a command that may start Ray where it cannot be seen, e.g. `systemctl restart`."""
    for words in _simple_commands(command):
        if _program(_leading_assignments(words)[1]) in _SOURCES:
            return " ".join(words[:2])
    return None


def _simple_commands(command: str) -> list[list[str]]:
    lexer = shlex.shlex(command, posix=True, punctuation_chars=";&|\n")
    lexer.whitespace = " \t"
    lexer.whitespace_split = True
    lexer.commenters = "#"
    try:
        words = list(lexer)
    except ValueError:  # an open quote
        return []
    commands: list[list[str]] = [[]]
    for word in words:
        if set(word) <= set(";&|\n"):
            commands.append([])
        elif inner := _outside_brackets(word, is_first=not commands[-1]):
            commands[-1].append(inner)
    return commands


def _outside_brackets(word: str, *, is_first: bool) -> str:
    """A word without the brackets of a subshell: `(ulimit`, `--head)`."""
    word = word.lstrip("(") if is_first else word
    return word if "(" in word else word.rstrip(")")


def _program(words: list[str]) -> str:
    return "." if words[:1] == ["."] else PurePath(words[0]).name if words else ""


def _leading_assignments(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """`A=1 env B=2 nice -n 0 ray start` -> what ray gets, and `ray start`."""
    env: dict[str, str] = {}
    rest = list(words)
    while rest:
        if match := _ASSIGNMENT.match(rest[0]):
            env[match[1]] = match[2]
        elif PurePath(rest[0]).name not in _WRAPPERS and not (env and rest[0].startswith("-")):
            break
        rest = _without_flags(rest) if PurePath(rest[0]).name in _WRAPPERS else rest[1:]
    return env, rest


def _without_flags(words: list[str]) -> list[str]:
    """The words behind a wrapper such as `nice -n 0` or `sudo -E`."""
    flag_takes_value = PurePath(words[0]).name == "nice"
    rest = words[1:]
    while rest and rest[0].startswith("-"):
        rest = rest[2:] if flag_takes_value and rest[0] == "-n" else rest[1:]
    return rest


def _assignments(words: list[str]) -> list[tuple[str, str]]:
    return [(match[1], match[2]) for word in words if (match := _ASSIGNMENT.match(word))]


def _open_files(words: list[str], before: int | None) -> int | None:
    """`ulimit -n 65536`, also `-Sn`, `-HSn`."""
    for flag, value in pairwise(words):
        if _LIMIT.match(flag) and value.isdigit():
            return int(value)
    return before


def _options(words: list[str]) -> dict[str, str]:
    """`--port=6379` and `--port 6379`; a flag alone is `true`."""
    found: dict[str, str] = {}
    for i, word in enumerate(words):
        if not word.startswith("--"):
            continue
        name, equals, value = word.removeprefix("--").partition("=")
        after = words[i + 1] if i + 1 < len(words) else "--"
        found[name] = value if equals else ("true" if after.startswith("--") else after)
    return found

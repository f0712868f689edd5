"""Secrets of a command line, moved into a file that only the server's user can read. Pure.

The process list of a host shows every command line to everybody. SGLang takes flags from `--config FILE.yaml` as well
(0.5.9 to 0.5.23): it puts `--key` and `str(value)` before the other words and lets argparse read the whole.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from actors.servers.launch import is_secret_flag

CONFIG_FLAG = "--config"


def split_secrets(argv: Sequence[str], begin: int = 0) -> tuple[tuple[str, ...], dict[str, str]]:
    """The words without secret flags, and the flags' values by name; words before `begin` are left alone.

    Nothing is taken if the words have a `--config` of their own, since SGLang reads only one.
    """
    words = list(argv[begin:])
    if any(word == CONFIG_FLAG or word.startswith(f"{CONFIG_FLAG}=") for word in words):
        return tuple(argv), {}
    kept: list[str] = []
    secrets: dict[str, str] = {}
    place = 0
    while place < len(words):
        name, equals, value = words[place].partition("=")
        if not is_secret_flag(name) or (not equals and place + 1 == len(words)):
            kept.append(words[place])
        else:
            place += not equals
            secrets[name] = value if equals else words[place]
        place += 1
    return (*argv[:begin], *kept), secrets


def config_text(secrets: dict[str, str]) -> str:
    """The YAML file for these flags. JSON strings are YAML strings, so no value is taken for a number or a date.

    A value that begins with a dash would be read as a flag of its own, so it is bound to its flag by `=`, which only a
    list lets us do: its items follow the flag as further words, here a switch that every server of ours gets anyway.
    """
    lines = []
    for flag, value in secrets.items():
        name = flag.removeprefix("--")
        if value.startswith("-"):
            lines.append(f"{_quoted(f'{name}={value}')}: [--enable-metrics]")
        else:
            lines.append(f"{_quoted(name)}: {_quoted(value)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """In ASCII, since a reader may open the file in any encoding; JSON's own escapes would split a character in two."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(letter if letter.isascii() else f"\\U{ord(letter):08x}" for letter in quoted)

"""A server of kind `command`: its settings, and the words of its command line that they become. Pure.

Names in braces are replaced inside words: {model}, {draft}, {value} and settings here; {host} and {port} on the host
where the server starts. Braces around anything else, such as JSON, stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.scenarios.scenario_engine import Engine, Model
from orchestrator.server_start import HOST_WORD, PORT_WORD
from orchestrator.sglang.options import SettingsFault, did_you_mean

FLAGS_WORD = "{flags}"
RESERVED = ("model", "draft", "host", "port", "flags", "value")
_PLACEHOLDER = re.compile(r"\{([A-Za-z][A-Za-z0-9_]*)\}")


def placeholders(word: str) -> list[str]:
    """The names in braces of a word."""
    return _PLACEHOLDER.findall(word)


def flag_words(engine: Engine, name: str) -> list[str]:
    """The words that a setting becomes; the short form is the flag with the value after it."""
    words = engine.flags[name]
    if isinstance(words, list):
        return words
    return [words] if "{value}" in words else [words, "{value}"]


def depth_names(engine: Engine) -> tuple[str, ...]:
    """The settings that are a depth of speculation."""
    given = engine.depth
    return () if given is None else (given,) if isinstance(given, str) else tuple(given)


def speculation_depth(engine: Engine, settings: Mapping[str, Any]) -> int:
    """How deep a config of kind `command` asks the server to speculate; 0 where it does not, or no setting tells."""
    return max((int(settings.get(name) or 0) for name in depth_names(engine)), default=0)


def command_settings(engine: Engine, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of one config, equal for equal starts: no `false`, and every depth explicit, 0 if it is off."""
    settings = {name: value for name, value in given.items() if value is not False}
    return {**dict.fromkeys(depth_names(engine), 0), **settings}


def command_setting_fault(engine: Engine, name: str, value: object) -> str | None:
    """Why a setting cannot be given, or None."""
    if name not in engine.flags:
        return f"has no words in engine.flags{did_you_mean(name, list(engine.flags))}"
    if name in depth_names(engine) and value is not False and not _is_depth(value):
        return f"is a depth of speculation: a whole number, 0 for none, not {value!r}"
    short = isinstance(engine.flags[name], str)
    if not isinstance(value, bool) and not short and not _is_used(engine, name):
        return f"is {value!r}, which its words in engine.flags do not use: write {{value}} there, or give true or false"
    return None


def _is_depth(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_used(engine: Engine, name: str) -> bool:
    """Whether the value of a setting reaches the command line, through its own words or those of others."""
    others = [word for other in engine.flags for word in flag_words(engine, other) if other != name]
    told = [found for word in (*engine.command, *others) for found in placeholders(word)]
    return name in told or any("{value}" in word for word in flag_words(engine, name))


def render(engine: Engine, model: Model, settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The command line of one config, {host} and {port} left in it.

    `settings` as `command_settings` returns them. SettingsFault for words that name a setting which is off.
    """
    flags = [word for name in engine.flags if name in settings for word in _flags(engine, model, settings, name)]
    words: list[str] = []
    for word in engine.command:
        words += flags if word == FLAGS_WORD else [_filled(word, model, settings)]
    return tuple(words if FLAGS_WORD in engine.command else [*words, *flags])


def _flags(engine: Engine, model: Model, settings: Mapping[str, Any], name: str) -> Iterator[str]:
    value = settings[name]
    if name in depth_names(engine) and value == 0:
        return
    words = flag_words(engine, name)
    if value is True and isinstance(engine.flags[name], str):
        words = [word for word in words if word != "{value}"]
    for word in words:
        if word == "{value}" and isinstance(value, list | tuple):
            yield from map(_text, value)
        else:
            yield _filled(word, model, settings, name)


def _filled(word: str, model: Model, settings: Mapping[str, Any], name: str | None = None) -> str:
    """A word of the command, or of the setting `name`, with what its braces name."""

    def text(found: re.Match[str]) -> str:
        wanted = name if name is not None and found[1] == "value" else found[1]
        if found[0] in {HOST_WORD, PORT_WORD}:
            return found[0]
        if wanted in {"model", "draft"}:
            return model.path if wanted == "model" else model.draft_path or ""
        if wanted not in settings and name is None:
            raise SettingsFault(wanted, "is named in engine.command, so every config must have it")
        if wanted not in settings:
            raise SettingsFault(name or wanted, f"has '{wanted}' in its words, which a config leaves out")
        return _text(settings[wanted])

    return _PLACEHOLDER.sub(text, word)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(_text, value)) if isinstance(value, list | tuple) else str(value)

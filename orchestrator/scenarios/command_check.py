"""What a scenario of kind `command` must have, and what only it may have. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from orchestrator.scenarios.command_template import FLAGS_WORD, RESERVED, depth_names, flag_words, placeholders
from orchestrator.scenarios.scenario import Scenario
from orchestrator.server_start import PORT_WORD
from orchestrator.sglang.options import did_you_mean, nearest

Fault = tuple[tuple[str | int, ...], str]

ONLY_COMMAND = ("flags", "ready", "depth", "counters")
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def check_command(scenario: Scenario) -> Fault | None:
    """The first fault of the template, or of its keys in a scenario of another kind."""
    if scenario.engine.kind != "command":
        return _out_of_place(scenario)
    checks = (_check_line, _check_names, _check_words, _check_depth, _check_models, _check_apis)
    return next((fault for check in checks if (fault := check(scenario))), None)


def _out_of_place(scenario: Scenario) -> Fault | None:
    engine = scenario.engine
    given = [key for key in ONLY_COMMAND if key in engine.model_fields_set]
    return (("engine", given[0]), f"is for kind `command`, but engine.kind is `{engine.kind}`") if given else None


def _check_line(scenario: Scenario) -> Fault | None:
    command = scenario.engine.command
    if not command:
        return ("engine", "command"), "is missing; kind `command` starts what it says"
    if not any(PORT_WORD in word for word in command):
        return ("engine", "command"), "has no {port}; Specsweep chooses a free port for each server"
    if command.count(FLAGS_WORD) > 1:
        return ("engine", "command"), "has {flags} twice; once is where all settings go"
    for i, word in enumerate(command):
        if FLAGS_WORD in word and word != FLAGS_WORD:
            return ("engine", "command", i), f"is '{word}'; {{flags}} is a word of its own, since it becomes several"
    return None


def _check_names(scenario: Scenario) -> Fault | None:
    for name in scenario.engine.flags:
        if name in RESERVED:
            return ("engine", "flags", name), f"has a meaning of its own in a command: {{{name}}}"
        if not _NAME.fullmatch(name):
            return ("engine", "flags", name), "is no name of a setting; write small letters, digits and underscores"
    return None


def _words(scenario: Scenario) -> Iterator[tuple[tuple[str | int, ...], str, tuple[str, ...]]]:
    """Path, word, and the names that its braces may hold besides those of settings."""
    engine = scenario.engine
    for i, word in enumerate(engine.command):
        yield ("engine", "command", i), word, ("model", "draft", "host", "port", "flags")
    for name in engine.flags:
        for word in flag_words(engine, name):
            yield ("engine", "flags", name), word, ("model", "draft", "host", "port", "value")


def _check_words(scenario: Scenario) -> Fault | None:
    for path, word, allowed in _words(scenario):
        known = [*allowed, *scenario.engine.flags]
        for name in placeholders(word):
            if name not in known:
                hint = nearest(name, known)
                meant = f"; did you mean {{{hint}}}?" if hint else f"; known are {', '.join(known)}"
                return path, f"has {{{name}}}, which is nothing known{meant}"
    return None


def _check_depth(scenario: Scenario) -> Fault | None:
    for name in depth_names(scenario.engine):
        if name not in scenario.engine.flags:
            meant = did_you_mean(name, list(scenario.engine.flags))
            return ("engine", "depth"), f"is '{name}', which has no words in engine.flags{meant}"
    counters = scenario.engine.counters
    if counters.accepted is None and (counters.drafted or counters.verified):
        return ("engine", "counters"), "lacks `accepted`, without which nothing can be said about acceptance"
    return None


def _check_models(scenario: Scenario) -> Fault | None:
    model = scenario.model
    uses_draft = any("draft" in placeholders(word) for _, word, _ in _words(scenario))
    if uses_draft and model.draft_path is None:
        return ("model", "draft_path"), "is missing; the command has {draft} in it"
    if model.draft_path is not None and not uses_draft:
        return ("model", "draft_path"), "is not used: write {draft} where the command takes it"
    if model.bundled_draft:
        return ("model", "bundled_draft"), "is for SGLang; with kind `command` the flags say what drafts"
    return None


def _check_apis(scenario: Scenario) -> Fault | None:
    for i, workload in enumerate(scenario.workloads):
        if workload.api == "generate":
            return ("workloads", i, "api"), "is `generate`, SGLang's own; with kind `command` give completions or chat"
    return None

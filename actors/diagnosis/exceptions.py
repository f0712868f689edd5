"""Exceptions that no rule knows: told by the place where they broke. Pure."""

from __future__ import annotations

import re

from actors.diagnosis.rule import Message
from orchestrator.outcome import Label, Phase

# The parent's account of a child that has told its reason before.
_ECHO = re.compile(
    r"Rank \d+ scheduler (?:died|is dead)|.{0,80}(?:sub)?process(?:es)? (?:exited|died|ended|failed)|EOFError$"
    r"|.{0,40}(?:Engine core|EngineCore|Executor|Worker)\w* .{0,60}(?:failed|died)|.{0,80}root cause above"
    r"|res=<Response|Initialization failed|.{0,60}Please see the error messages above",
    re.IGNORECASE,
)
_STARTING = frozenset(
    {Phase.SPAWN, Phase.DIST_INIT, Phase.WEIGHTS, Phase.DRAFT_WEIGHTS, Phase.KV_POOL, Phase.STATE_POOL, Phase.HTTP_BIND}
)
_GRAPHS = frozenset({Phase.GRAPH_TARGET, Phase.GRAPH_DRAFT})
SERVING = frozenset({Phase.WARMUP, Phase.READY, Phase.SERVING})
# How SGLang refuses a combination: before it loads anything, and later where the model decides.
_REFUSALS = ("ValueError", "AssertionError", "NotImplementedError", "TypeError")
_LATE_REFUSALS = _REFUSALS[:3]
# Slips of code: at the start they come from the model or the combination, each time anew.
_SLIPS = ("AttributeError", "KeyError", "IndexError", "NameError", "UnboundLocalError", "TypeError")


def is_echo(message: Message) -> bool:
    """Whether this exception only tells that something else has died."""
    return _ECHO.match(message.body) is not None or _ECHO.match(message.whole) is not None


def label_of_exception(text: str, place: Phase | None, now: Phase, *, fatal: bool) -> Label:
    """The label of an exception by the place in the code, else by the phase that the server was in.

    While serving, an exception is a fault of the software only if it broke in the server's loop or ended a process:
    others are those of one request.
    """
    where = now if now in SERVING else place or now
    if where is Phase.ARGS:
        refused = text.startswith(_REFUSALS) or (place is Phase.ARGS and text.startswith("RuntimeError"))
        return Label.CONFIG_CONFLICT if refused else Label.UNKNOWN
    if where in _GRAPHS:
        return Label.CAPTURE_ERROR
    if where in SERVING:
        return Label.SOFTWARE_BUG if place is Phase.SERVING or fatal else Label.UNKNOWN
    if where in _STARTING and text.startswith(_LATE_REFUSALS):
        return Label.CONFIG_CONFLICT
    if where in _STARTING and (fatal or place is not None) and text.startswith(_SLIPS):
        return Label.CONFIG_CONFLICT
    return Label.UNKNOWN

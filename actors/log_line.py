"""A server's log line without what others put around it: container runtimes, log shippers, Ray, torch, colours."""

from __future__ import annotations

import re
from dataclasses import dataclass

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|\x1b|^\[\d{1,2}(?:;\d{1,2})*m")
_SHIPPERS = re.compile(
    r"""^(?:
      [A-Za-z][\w.-]*\s*\|\ (?!\s*\d+/\d+)                                # docker compose: 'sglang-1  | '
    | (?:[A-Z]{4,8}\ )?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*\ (?:std(?:out|err)\ [FP]\ )?   # CRI, cloud loggers
    | [A-Z][a-z]{2}\ [\ \d]\d\ \d\d:\d\d:\d\d\ \S+\ \S+\[\d+\]:\ ?        # journald
    | \([^()]*\bpid=\d+[^()]*\)\ ?                                        # Ray: '(Engine pid=7, ip=10.0.0.1) '
    | \[rank\d+\]:\s?                                                     # torch
    | (?:ERROR|WARNING|INFO)\ \d\d-\d\d\ \d\d:\d\d:\d\d\ (?:\[\S+\]\ )?     # vLLM
    )""",
    re.VERBOSE,
)
_RAY_REPEATED = re.compile(r"\s*\[repeated \d+x across cluster\].*$")
_HEADER = re.compile(
    r"^\[(?P<stamp>(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(?:\.\d{1,6})?)?"
    r"(?P<rank>(?: ?(?:DP|PP|ATTN_CP|MOE_DP|TP|EP)\d+)*)\] (?P<message>.*)$"
)


@dataclass(frozen=True, slots=True)
class LogLine:
    """`stamp` and `rank` are empty where the line has none: continuation lines, uvicorn's, warnings."""

    message: str
    stamp: str = ""
    rank: str = ""


def clean(text: str) -> LogLine:
    """The message with the server's own time stamp and rank tag taken off."""
    text = _COLOUR.sub("", text.rstrip())
    if "[repeated" in text:
        text = _RAY_REPEATED.sub("", text)
    while stripped := _SHIPPERS.match(text):
        text = text[stripped.end() :]
    header = _HEADER.match(_COLOUR.sub("", text))
    if header is None or not (header["stamp"] or header["rank"]):
        return LogLine(text)
    return LogLine(header["message"], header["stamp"] or "", header["rank"].strip())

"""A server's log line without what others put around it: container runtimes, log shippers, Ray, torch, colours."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b|^\[\d{1,2}(?:;\d{1,2})*m")
_SHIPPERS = re.compile(
    r"""(?:
      [A-Za-z][\w.-]*\s*\|\ (?!\s*\d+/\d+)                                # docker compose: 'sglang-1  | '
    | (?:[A-Z]{4,8}\ )?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*\ (?:std(?:out|err)\ [FP]\ )?   # CRI, cloud loggers
    | [A-Z][a-z]{2}\ [\ \d]\d\ \d\d:\d\d:\d\d\ \S+\ (?:\S+\[\d+\]|kernel):\ ?   # syslog, journald
    | (?<=[\dZ]\ )[\w.-]+\ (?:[\w@.-]+\[\d+\]|kernel):\ ?                     # journald with an ISO stamp before it
    | \[(?:pod|container)/[^\]]+\]\ ?                                     # kubectl logs --prefix
    | [\w-]+\ (?:\u203a|>)\ [\w-]+\ (?=\[?\d{4}-)                          # stern: 'pod > container '
    | \([^()]*\bpid=\d+[^()]*\)\ ?                                        # Ray: '(Engine pid=7, ip=10.0.0.1) '
    | \d{4}-\d\d-\d\d\ \d\d:\d\d:\d\d(?:[.,]\d+)?\                     # docker logs -t, Python's own formats
      (?:(?:INFO|WARNING|ERROR|CRITICAL)\ +(?:\d+\ )?(?:\[[\w.]+:\d+\]\ )?)?
    | \[gpu_id=\d+\]\                                                       # SGLang 0.2
    | \[\d+,\d+\]<std(?:out|err)>:\ ?                                     # mpirun
    | \[\d{1,3}\]:?\ (?=\[|\S+Error:|Traceback)                            # torchrun --log, srun -l
    | \[rank\d+\]:\s?                                                     # torch
    | \[[IWEF](?:\d{3,4}\ [\d:.]+)?\ [\w./]+:\d+\]\ ?                      # torch: '[E602 11:17:52.5 File.cpp:17] '
    | \[\d{4}-\d\d-\d\d\ [\d:]{8}:\d{3}\]\ [\w.]+:\ \[[A-Z]+\]\ \[\d+\]\    # torch_npu: '[2026-05-29 16:30:21:955] ...'
    | [IWEF]\d{4,8}\ [\d:.]+\s+\d+\ [\w./]+:\d+\]\ ?                       # glog: 'E0115 05:20:19.9 309 file.cpp:81] '
    | (?:ERROR|WARNING|INFO)\ \d\d-\d\d\ \d\d:\d\d:\d\d\ (?:\[\S+\]\ |[\w./]+\.py:\d+\]\ )?     # vLLM
    | \[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[\d.]*(?:Z|[+-]\d\d:?\d\d)\]\ ?     # CI runners
    | [A-Z][a-z]{2}\ +\d{1,2},\ \d{4}\ @\ \d\d:\d\d:\d\d[\d.]*\s+           # Kibana: 'May 16, 2026 @ 20:48:02.100    '
    | \|\ [A-Z]{4,8}\ +\|\ [\w.]+(?::\w+:\d+)?\ [|-]\                       # loguru: '| ERROR | a.module | '
    | \[[A-Za-z][\w.-]*:\d+(?::\d+){1,2}\]\ +                                     # UCX: '[host-a:12345:0:12345] '
    | >\                                                                  # quoted in a report
    | \d{1,4}:\                                                           # srun -l: '0: '
    )""",
    re.VERBOSE,
)
# Docker's own and other shippers' JSON: an object with the line and a stream, level or time beside it.
_JSON = re.compile(r'[{,] ?"(?:log|message|msg)": ?(?P<text>"(?:[^"\\]|\\.)*")')
_JSON_KEY = re.compile(r'"(?:log|stream|level|severity|time|timestamp|ts)": ?["\d]')
_RAY_REPEATED = re.compile(r"\s*\[repeated \d+x across cluster\].*$")
_HEADER = re.compile(
    r"^\[?(?P<stamp>(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(?:\.\d{1,6})?)?"
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
    text = text.strip()
    if "\u2502" in text:  # cells of a table that a terminal drew
        text = text.strip("\u2502 ")
    text = _from_json(text)
    if "\x1b" in text or text.startswith("["):
        text = _COLOUR.sub("", text)
    if "[repeated" in text:
        text = _RAY_REPEATED.sub("", text)
    position = 0
    while (stripped := _SHIPPERS.match(text, position)) and stripped.end() > position:
        position = stripped.end()
    text = _from_json(text[position:].lstrip()) if position else text
    if text.startswith("["):
        text = _COLOUR.sub("", text)
    header = _HEADER.match(text)
    if header is None or not (header["stamp"] or header["rank"]):
        return LogLine(text)
    return LogLine(header["message"], header["stamp"] or "", header["rank"].strip())


def _from_json(text: str) -> str:
    if text.startswith('{"') and _JSON_KEY.search(text) and (wrapped := _JSON.search(text)):
        return str(json.loads(wrapped["text"], strict=False)).strip()
    return text

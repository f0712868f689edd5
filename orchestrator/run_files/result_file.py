"""`result.json`, written where a run ended."""

from __future__ import annotations

import sys
from pathlib import Path

import orjson

from orchestrator.paths import write_whole
from orchestrator.run_files.run_result import RunResult


def write_result(file: Path, result: RunResult) -> bool:
    """Whether it is there. The run has ended as it has: a full disk is told, and makes no other end of it."""
    try:
        write_whole(file, orjson.dumps(result.as_json(), option=orjson.OPT_INDENT_2) + b"\n")
    except OSError as fault:
        print(f"specsweep: {file}: the result cannot be written: {fault.strerror or fault}", file=sys.stderr)  # noqa: T201
        return False
    return True

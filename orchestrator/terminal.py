"""Where commands print: the terminal, or plain text for files and jobs."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, TextIO

from orchestrator.shown_text import harmless

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

JOB_MARK = "RAY_JOB_CONFIG_JSON_ENV_VAR"


def console(*, stderr: bool = False) -> Console:
    """Colours and widths of the terminal; elsewhere wide enough for tables. `stderr`: where the output is for machines.

    The log of a Ray job and that of a CI job are files, whatever variables like FORCE_COLOR say: no control characters
    get there. What names, logs and files of strangers hold never acts on a terminal.
    """
    console_of = _harmless_console()
    is_log = JOB_MARK in os.environ or os.environ.get("CI", "").lower() not in ("", "0", "false")
    console = console_of(force_terminal=False, no_color=True, stderr=stderr) if is_log else console_of(stderr=stderr)
    if not console.is_terminal:
        console.width = max(console.width, 160)
    return console


class _LastingStream:
    """A standard stream that goes silent when it takes no more: its reader has left, or its disk is full."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            self._go_silent()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            self._go_silent()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _go_silent(self) -> None:
        """Also for Python's own last flush, which would end us with a code of its own."""
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


@contextlib.contextmanager
def lasting_output() -> Iterator[None]:
    """For what takes hours and has its results in files: that nobody reads its lines any more ends nothing, and is no
    exit code (rich would end with 1, which is a night's word for a regression).
    """
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(_LastingStream, streams)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = streams


def print_json(value: Any, console: Console) -> None:
    """What `--json` asked for: one value, without colours or folded lines."""
    console.file.write(json.dumps(value, indent=1) + "\n")


@cache
def _harmless_console() -> type[Console]:
    """Made late, since `--help` does without rich."""
    from rich.console import Console
    from rich.segment import Segment

    class HarmlessConsole(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else harmless(text), style, control)

    return HarmlessConsole

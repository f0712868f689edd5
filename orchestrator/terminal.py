"""Where commands print: the terminal, or plain text for files and jobs."""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import time
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from orchestrator.errors import OutputFault
from orchestrator.shown_text import harmless

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

JOB_MARK = "RAY_JOB_CONFIG_JSON_ENV_VAR"
_UNKNOWN_WIDTH = 80


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
    elif console.width < 1:  # COLUMNS=0, as some editors say that they do not know it
        console.width = _UNKNOWN_WIDTH
    return console


def say(text: str, console: Console, style: str = "") -> None:
    """In a file one line, which is searched for; on a terminal broken between words, under its own beginning."""
    from rich.padding import Padding
    from rich.text import Text

    if not console.is_terminal:
        console.print(Text(text, style=style), soft_wrap=True)
        return
    words = text.lstrip()
    console.print(Padding(Text(words, style=style), (0, 0, 0, len(text) - len(words))))


def redraws(console: Console) -> bool:
    """Whether a table can be drawn over itself there. A terminal of TERM=dumb cannot: an editor, a serial line."""
    return console.is_terminal and not console.is_dumb_terminal


class _Output:
    """A standard stream whose reader may leave, or whose disk may be full: then it goes silent.

    That nobody reads any more ends no command and is no exit code, unless it `ends`; a disk that is full is a fault,
    unless what is printed `lasts`, which means that it is in files as well.
    """

    def __init__(self, stream: Any, *, lasts: bool = False, ends: bool = False) -> None:
        self._stream = stream
        self._lasts, self._ends = lasts, ends
        self.fault: OutputFault | None = None  # remembered, since whoever tries what a stream can do swallows it

    def write(self, text: Any) -> int:
        try:
            return int(self._stream.write(text))
        except OSError as error:
            self._failed(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._failed(error)

    @property
    def buffer(self) -> _Output:
        return _Output(self._stream.buffer, lasts=self._lasts, ends=self._ends)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _failed(self, error: OSError) -> None:
        # Silent also for Python's own last flush, which would end us with a code of its own.
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
        if isinstance(error, BrokenPipeError):
            if self._ends:
                raise SystemExit(0)
        elif not self._lasts:
            self.fault = OutputFault(f"standard output: {error.strerror or error}: what is printed is not whole")
            raise self.fault


@contextlib.contextmanager
def own_output() -> Iterator[None]:
    """Around every command: its exit code is its own, also where nobody reads its lines any more (rich and click would
    end with 1, which is a night's word for a regression). OutputFault where a disk is full.
    """
    with _fated():
        yield


@contextlib.contextmanager
def lasting_output() -> Iterator[None]:
    """For what takes hours and has its results in files: not even a full disk for its lines ends it."""
    with _fated(lasts=True):
        yield


@contextlib.contextmanager
def read_output() -> Iterator[None]:
    """For what is printed without end, or at any length: it ends in order, with 0, when its reader has left."""
    with _fated(ends=True):
        yield


@contextlib.contextmanager
def _fated(*, lasts: bool = False, ends: bool = False) -> Iterator[None]:
    before = sys.stdout, sys.stderr  # None where whoever started us has closed it
    out, err = (stream._stream if isinstance(stream, _Output) else stream for stream in before)
    # Nothing is lost with the lines of errors: the exit code says that there was one.
    outputs = out and _Output(out, lasts=lasts, ends=ends), err and _Output(err, lasts=True)
    sys.stdout, sys.stderr = cast("Any", outputs)
    try:
        yield
    finally:
        try:
            for output in filter(None, outputs):
                output.flush()
        finally:
            sys.stdout, sys.stderr = before
        if outputs[0] and outputs[0].fault is not None:
            raise outputs[0].fault


def wait_while_read(seconds: float) -> None:
    """Sleep, but no longer than somebody reads standard output: `head` leaves in the middle of a silence, too."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)  # tells only that a pipe has no reader, or a terminal is gone
    except (AttributeError, OSError, ValueError):
        time.sleep(seconds)
        return
    if poll.poll(seconds * 1000):
        raise SystemExit(0)


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

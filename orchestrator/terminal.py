"""Where commands print: the terminal, or plain text for files and jobs."""

from __future__ import annotations

import json
import os
from functools import cache
from typing import TYPE_CHECKING, Any

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

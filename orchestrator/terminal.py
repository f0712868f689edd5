"""Where commands print: the terminal, or plain text for files and jobs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

JOB_MARK = "RAY_JOB_CONFIG_JSON_ENV_VAR"


def console(*, stderr: bool = False) -> Console:
    """Colours and widths of the terminal; elsewhere wide enough for tables. `stderr`: where the output is for machines.

    The log of a Ray job is a file, whatever variables like FORCE_COLOR say: no control characters get there.
    """
    from rich.console import Console

    console = (
        Console(force_terminal=False, no_color=True, stderr=stderr)
        if JOB_MARK in os.environ
        else Console(stderr=stderr)
    )
    if not console.is_terminal:
        console.width = max(console.width, 160)
    return console

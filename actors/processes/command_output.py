"""What a command of this host printed."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence


def output_of(words: Sequence[str], *, limit_s: float, env: Mapping[str, str] | None = None) -> str | None:
    """Its standard output; None if it cannot be run, failed, or took longer. It reads nothing."""
    try:
        done = subprocess.run(
            words, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None

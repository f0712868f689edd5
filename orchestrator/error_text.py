"""What is told of an error that is not ours: one line, without its traceback. Pure."""

from __future__ import annotations

from typing import Any


def first_line(error: Exception) -> str:
    """Its first line, or its kind if it says nothing."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def cause_of(error: Any) -> str:
    """What was raised in an actor, by Ray's error about it (`cause`)."""
    cause = error.cause
    return f"{type(cause).__name__}: {cause}" if cause is not None else first_line(error)

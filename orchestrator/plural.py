"""Counted things in words. Pure."""

from __future__ import annotations


def plural(number: int, one: str, more: str | None = None) -> str:
    """`1 trial`, `2 trials`, `1,000 trials`; `more` where it is not formed by an s."""
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def without_digits(text: str) -> str:
    """A sentence without its figures: the same one of other trials and points."""
    return "".join(c for c in text if not c.isdigit())

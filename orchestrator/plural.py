"""Counted things in words. Pure."""

from __future__ import annotations


def plural(number: int, one: str) -> str:
    """`1 trial`, `2 trials`, `1,000 trials`."""
    return f"{number:,} {one}{'' if number == 1 else 's'}"

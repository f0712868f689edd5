"""Units of systemd, read as systemd does."""

from __future__ import annotations


def directives(text: str) -> dict[str, list[str]]:
    """Directives of a unit, continued lines joined; some are given several times."""
    found: dict[str, list[str]] = {}
    for line in text.replace("\\\n", " ").splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith(("#", "[")):
            found.setdefault(name, []).append(value)
    return found

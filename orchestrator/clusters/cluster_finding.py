"""One thing about a cluster file, with its place. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault must be repaired before `ray up`; a warning says what will be worse. `line` counts from 1."""

    line: int | None
    key: str
    message: str
    is_fault: bool = True

    def told(self, file: str) -> str:
        """`FILE:LINE: fault: KEY: MESSAGE`, as editors and compilers write places."""
        place = file if self.line is None else f"{file}:{self.line}"
        kind = "fault" if self.is_fault else "warning"
        return f"{place}: {kind}: {self.key}: {self.message}" if self.key else f"{place}: {kind}: {self.message}"

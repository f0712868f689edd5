"""How many routine lines the log of a run may get. Pure."""

from __future__ import annotations

# So many at once, then one in so many seconds.
MOST_ROUTINE, ROUTINE_S = 40, 5.0


class LineAllowance:
    """How many routine lines a log may still get: a run of many slots would fill it with several a second."""

    def __init__(self, now: float) -> None:
        self._left, self._at = float(MOST_ROUTINE), now
        self.held_back = 0

    def grants(self, now: float) -> bool:
        """Whether one more may be said now, in seconds of any clock; what is not is counted."""
        self._left = min(MOST_ROUTINE, self._left + (now - self._at) / ROUTINE_S)
        self._at = now
        if self._left < 1:
            self.held_back += 1
            return False
        self._left -= 1
        return True

"""For tests of the load side, which hold on a machine that stands still for seconds anywhere."""

from __future__ import annotations

import pytest

from tests.fakes.leaping_clock import LeapingClock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> LeapingClock:
    """The clock of this process, which the servers of a test can let leap."""
    return LeapingClock(monkeypatch)


@pytest.fixture(autouse=True)
def _connections_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the next request takes to come: their numbers are asserted, and seconds would end them."""
    monkeypatch.setattr("actors.wire.connection_pool._KEEP_ALIVE_S", 1e9)

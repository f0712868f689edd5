"""When a fault strikes: counts requests, draws lots, and minds how often it may. No clock of its own."""

from __future__ import annotations

import random

from actors.emulator.serving_fault import DropConnection, EndpointFault, RequestFault, ServerFault


class Trigger:
    """Of one request fault. `rng` is its own, so that the draws of faults do not depend on each other."""

    def __init__(self, fault: RequestFault, rng: random.Random) -> None:
        self.fault = fault
        self._rng = rng
        self._seen = 0
        self._struck = 0

    @property
    def by_itself(self) -> bool:
        """Whether time alone brings it about."""
        fault = self.fault
        return isinstance(fault, ServerFault) and fault.request is None and fault.probability is None

    def strikes(self, path: str, served_s: float, *, reused: bool = False) -> bool:
        """Count a request, `served_s` seconds after ready, on a connection that may have served one before.

        Whether the fault strikes it.
        """
        fault = self.fault
        if self.by_itself or fault.path not in {None, path}:
            return False
        self._seen += 1
        if self._seen < (fault.request or 1) or served_s < fault.after_s:
            return False
        if isinstance(fault, DropConnection) and not reused:
            return False
        if fault.times != "always" and self._struck >= fault.times:
            return False
        if fault.probability is not None and self._rng.random() >= fault.probability:
            return False
        self._struck += 1
        return True


class EndpointTrigger:
    """Of a fault of a side endpoint."""

    def __init__(self, fault: EndpointFault) -> None:
        self.fault = fault
        self._struck = 0

    def strikes(self, path: str, served_s: float) -> bool:
        """Whether a request is struck."""
        fault = self.fault
        until = float("inf") if fault.seconds is None else fault.after_s + fault.seconds
        if path != fault.path or not fault.after_s <= served_s < until:
            return False
        if fault.times != "always" and self._struck >= fault.times:
            return False
        self._struck += 1
        return True

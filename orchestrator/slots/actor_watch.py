"""Whether a slot's actor is there while something else is waited for: a call that it never answers."""

from __future__ import annotations

from typing import Any

from orchestrator.error_text import first_line
from orchestrator.slots.slot_port import SlotLost, TrialBroken

# What has come until a host was lost is taken as long as this; then nobody waits for the rest.
DRAIN_S = 10.0


class ActorWatch:
    """Ends when the actor is gone, and when it could not be reached for seconds: what was measured then counts not.

    Calls that are on their way when a connection is cut fail though the actor lives on, so a cut is told apart.
    """

    def __init__(self, name: str, actor: Any) -> None:
        self._name = name
        self._actor = actor
        self._call: Any = None

    @property
    def call(self) -> Any:
        """Something for `ray.wait`: it is ready when there is a fault."""
        if self._call is None:
            self._call = self._actor.stay.remote()
        return self._call

    def renew(self) -> None:
        """From now on: a cut that was over before says nothing of what follows."""
        self.fault()
        _ = self.call

    def fault(self, wait_s: float = 0.0) -> SlotLost | TrialBroken | None:
        """SlotLost if the actor is gone, TrialBroken if it was cut off for a while; None while nothing is known."""
        import ray

        try:
            ray.get(self.call, timeout=wait_s)
        except ray.exceptions.GetTimeoutError:
            return None
        except ray.exceptions.ActorUnavailableError as error:
            self._call = None
            return TrialBroken(f"{self._name} was cut off for a while: {first_line(error)}")
        except ray.exceptions.RayError as error:
            return SlotLost(f"{self._name}: {first_line(error)}")
        return SlotLost(f"{self._name}: the actor has left")

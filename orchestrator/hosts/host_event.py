"""What happens to the hosts of a run while it goes on: told to the user, kept in the journal. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from orchestrator.plural import plural


class HostChange(StrEnum):
    """The names are those of the journal."""

    JOINED = "host_joined"  # its slots take part from now on
    LOST = "host_lost"
    QUARANTINED = "host_quarantined"  # lost too often: not used again in this run
    UNUSED = "host_unused"  # it is there and matches, but this run does not use it
    SLOT_ANEW = "slot_anew"  # the actor of a slot died, its host did not
    AWAITED = "hosts_awaited"  # no slot is left, and work is
    UNSEEN = "hosts_unseen"  # the cluster cannot be watched any more


@dataclass(frozen=True, slots=True)
class HostEvent:
    """`host` is empty where all hosts are meant. `reason` is a sentence without a full stop, `slots` names slots."""

    change: HostChange
    host: str
    at: str
    reason: str = ""
    slots: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """For the user, without the host's name."""
        slots = f" ({plural(len(self.slots), 'slot')})" if self.slots else ""
        reason = f": {self.reason}" if self.reason else ""
        match self.change:
            case HostChange.JOINED:
                return f"joined the run{slots}{reason}"
            case HostChange.LOST:
                return f"lost{slots}{reason}"
            case HostChange.QUARANTINED:
                return f"is not used any more in this run{reason}"
            case HostChange.UNUSED:
                return f"is not used{reason}"
            case HostChange.SLOT_ANEW:
                return f"made anew: {', '.join(self.slots)}{reason}"
            case HostChange.AWAITED:
                return f"no slot is left; waiting for hosts{reason}"
            case HostChange.UNSEEN:
                return f"hosts that join or come back are not seen any more{reason}"

    def as_json(self) -> dict[str, Any]:
        """As the journal keeps it, without the name of the event."""
        return {"host": self.host, "at": self.at, "reason": self.reason, "slots": list(self.slots)}


def host_notes(events: list[dict[str, Any]]) -> list[str]:
    """What the reader of a ranking must know of its hosts, of a journal's events: who was lost, and who for good."""
    lost: dict[str, int] = {}
    told: list[str] = []
    for event in events:
        if event.get("event") == HostChange.LOST:
            lost[event["host"]] = lost.get(event["host"], 0) + 1
        elif event.get("event") in {HostChange.QUARANTINED, HostChange.UNUSED}:
            what = "quarantined" if event["event"] == HostChange.QUARANTINED else "not used"
            told.append(f"host {event['host']} was {what}: {event['reason']}")
    losses = [f"host {h} was lost {'once' if n == 1 else f'{n} times'} during the run" for h, n in sorted(lost.items())]
    return losses + list(dict.fromkeys(told))

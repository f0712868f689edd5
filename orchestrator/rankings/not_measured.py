"""A config that a ranking has to tell of without a value: why its servers died, and what followed. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from actors.diagnosis.advice import advice
from orchestrator.outcome import Diagnosis, Label, Phase
from orchestrator.recoveries.run_repairs import Story


@dataclass(frozen=True, slots=True)
class NotMeasured:
    """A config without (all) its points: `label`, `phase` and `evidence` of its last server, and what followed."""

    config_id: str
    settings: dict[str, Any]
    label: str
    phase: str
    evidence: str
    story: Story
    host_class: str = ""

    @property
    def served_as(self) -> str | None:
        """The config that was measured in its place after a repair."""
        return self.story.served_as

    @property
    def advice(self) -> tuple[str, ...]:
        """What to change, best first; nothing for a label that this release does not know."""
        if self.label not in set(Label):
            return ()
        return advice(Diagnosis(Label(self.label), Phase.LAUNCH, self.evidence))

    def as_json(self) -> dict[str, Any]:
        names = ("config_id", "settings", "label", "phase", "evidence")
        return {name: getattr(self, name) for name in names} | {
            "served_as": self.served_as,
            "tries": [attempt.as_json() for attempt in self.story.attempts],
            "suggestion": [change.as_json() for change in self.story.suggestion],
            "recovery": self.story.reason,
            "advice": list(self.advice),
            **({"host_class": self.host_class} if self.host_class else {}),
        }

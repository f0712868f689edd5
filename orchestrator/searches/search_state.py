"""What the journal of a run says of its searches. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

OF_SEARCH = frozenset({"trial_asked", "point_spared", "search_step", "block_began", "run_resumed"})


@dataclass
class SearchState:
    """What was asked, spared and decided, each as its event has it, oldest first.

    `asked_before`: how many were asked before the last start of the run. `blocks`: the number of each host that has a
    reference.
    """

    asked: list[dict[str, Any]] = field(default_factory=list)
    asked_before: int = 0
    spared: dict[str, dict[str, Any]] = field(default_factory=dict)  # by point id
    steps: list[dict[str, Any]] = field(default_factory=list)
    blocks: dict[str, int] = field(default_factory=dict)

    def saw(self, event: dict[str, Any]) -> None:
        """Fold one event of `OF_SEARCH` in."""
        told = {name: value for name, value in event.items() if name != "event"}
        match event["event"]:
            case "trial_asked":
                self.asked.append(told)
            case "point_spared":
                self.spared[told["point_id"]] = told
            case "search_step":
                self.steps.append(told)
            case "block_began":
                self.blocks[told["host"]] = told["number"]
            case "run_resumed":
                self.asked_before = len(self.asked)


def probed_mark(trial_id: str) -> str:
    """Among the ids of finished work: the trial has ended its search over rates."""
    return f"probed:{trial_id}"

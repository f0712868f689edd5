"""What the report of a run is made of: its ranking and the rows of its tables, by class of hosts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from orchestrator.aim import Aim
from orchestrator.run_ranking import RunRanking
from orchestrator.scenario import Scenario
from orchestrator.trial import LoadLevel

Row = Mapping[str, Any]
# Configs that are drawn in colour and have plots of their own; the others are drawn muted.
MOST_HIGHLIGHTED = 12


@dataclass(frozen=True)
class PartMaterial:
    """One class of hosts of a run. `ranking` is its own; `trials`, `loads`, `points` are rows of its tables.

    `mark` goes into the ids of its blocks, empty where the run has one class. `commands`: how highlighted configs are
    started by hand, by id; `raw_commands`: what their servers were started with, as they told.
    """

    scenario: Scenario
    ranking: RunRanking
    trials: Sequence[Row]
    loads: Sequence[Row]
    points: Sequence[Row]
    mark: str = ""
    commands: Mapping[str, str] = field(default_factory=dict)
    raw_commands: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def labels(self) -> dict[str, str]:
        """What its configs are called, by id."""
        return self.ranking.labels

    def name(self, config_id: str) -> str:
        return self.labels.get(config_id, config_id)

    def standing(self, config_id: str) -> str:
        """The config that stands for this one in the rankings: itself, or one that came to the same server."""
        return self.ranking.merged.get(config_id, config_id)

    @cached_property
    def highlighted(self) -> tuple[str, ...]:
        """Ids of the configs that matter most: what was picked, then the next of every ranking in turn."""
        found: dict[str, None] = {}
        ranked = [[row.config_id for row in r.rows if row.value is not None] for r in self.ranking.rankings]
        fronts = [[row.config_id for row in f.rows if row.place == "on"] for f in self.ranking.fronts]
        places = [*ranked, *fronts]
        for place in range(max(map(len, places), default=0)):
            for ids in places:
                if place < len(ids) and len(found) < MOST_HIGHLIGHTED:
                    found.setdefault(ids[place])
        return tuple(found)

    @property
    def picks(self) -> tuple[str, ...]:
        """Ids of the winners, each once."""
        return tuple(dict.fromkeys(r.winner.config_id for r in self.ranking.rankings if r.winner))

    @cached_property
    def places(self) -> tuple[tuple[str, LoadLevel], ...]:
        """Workloads and load levels that objectives look at, each once, in their order."""
        found: dict[tuple[str, LoadLevel], None] = {}
        for ranking in self.ranking.rankings:
            aim = Aim(ranking.metric, ranking.maximize, ranking.workload, ranking.level)
            for reading in aim.readings:
                level = reading.level or aim.level
                if level is not None:
                    found.setdefault((reading.workload or aim.workload, level))
        return tuple(found)


@dataclass(frozen=True)
class RunMaterial:
    """A run as its directory has it. `events`: its journal, without what servers told of themselves."""

    root: Path
    manifest: Mapping[str, Any]
    scenario: Scenario
    ranking: RunRanking
    parts: tuple[PartMaterial, ...]
    events: Sequence[Row] = field(repr=False, default=())
    linked: Path | None = None

    @property
    def place(self) -> Path:
        """The directory as users know it: where the root is a mirror of a run that is watched, the run's own."""
        return self.linked or self.root

    @property
    def complete(self) -> bool:
        """Whether the run came to its end."""
        last = next((e for e in reversed(self.events) if e["event"] in ("run_ended", "trial_started")), None)
        return last is not None and last["event"] == "run_ended" and bool(last.get("complete"))

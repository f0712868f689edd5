"""What the report of a run is made of: its ranking and the rows of its tables, by class of hosts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from orchestrator.nightly.night_json import NightTold
from orchestrator.nightly.night_pairs import PairCount
from orchestrator.nights.night import Measured
from orchestrator.objectives.aim import Aim
from orchestrator.rankings.run_ranking import RunRanking
from orchestrator.reports.report_values import WorkloadValues, workloads_of
from orchestrator.scenarios.config_label import short_names
from orchestrator.scenarios.scenario import Scenario
from orchestrator.trial import LoadLevel

Row = Mapping[str, Any]
# Configs that are drawn in colour and have plots of their own; the others are drawn muted.
MOST_HIGHLIGHTED = 12
# Configs that are drawn muted: a curtain of hundreds shows no more than these.
MOST_MUTED = 60
# Configs whose values are worked out at every level.
MOST_DRAWN = 1000


def _in_turn(lists: Sequence[Sequence[str]], most: int) -> tuple[str, ...]:
    """The first of each, then the second of each, and so on; each name once."""
    found: dict[str, None] = {}
    for place in range(max(map(len, lists), default=0)):
        for names in lists:
            if place < len(names) and len(found) < most:
                found.setdefault(names[place])
        if len(found) >= most:
            break
    return tuple(found)


def undrawn(others: int) -> str:
    """Goes on after how many are muted; empty where all of them are drawn."""
    return f", {others - MOST_MUTED:,} of them not drawn" if others > MOST_MUTED else ""


@dataclass(frozen=True, slots=True)
class NightParts:
    """The builds of a night by the id of their configs, as they are called, reference before candidate; and the load
    levels that are looked at closely.
    """

    names: Mapping[str, str]
    places: tuple[tuple[str, LoadLevel], ...]


@dataclass(frozen=True)
class PartMaterial:
    """One class of hosts of a run. `ranking` is its own; `trials`, `loads`, `points` are rows of its tables.

    `mark` goes into the ids of its blocks, empty where the run has one class. `commands`: how highlighted configs are
    started by hand, by id; `raw_commands`: what their servers were started with, as they told. `night`: of a night,
    which ranks nothing, what is drawn instead.
    """

    scenario: Scenario
    ranking: RunRanking
    trials: Sequence[Row]
    loads: Sequence[Row]
    points: Sequence[Row]
    mark: str = ""
    commands: Mapping[str, str] = field(default_factory=dict)
    raw_commands: Mapping[str, str] = field(default_factory=dict)
    night: NightParts | None = None

    @cached_property
    def labels(self) -> dict[str, str]:
        """What its configs are called, by id."""
        return {**self.ranking.labels, **(self.night.names if self.night else {})}

    def name(self, config_id: str) -> str:
        return self.labels.get(config_id, config_id)

    @cached_property
    def _short(self) -> tuple[dict[str, str], str]:
        return short_names(self.labels)

    def row_name(self, config_id: str) -> str:
        """What it is called at an axis, where long names find no room: by its values, whose names `rows_title` has."""
        return self._short[0].get(config_id, config_id)

    @property
    def rows_title(self) -> str:
        return self._short[1]

    def standing(self, config_id: str) -> str:
        """The config that stands for this one in the rankings: itself, or one that came to the same server."""
        return self.ranking.merged.get(config_id, config_id)

    @cached_property
    def highlighted(self) -> tuple[str, ...]:
        """Ids of the configs that matter most: what was picked, then the next of every ranking in turn."""
        fronts = [[row.config_id for row in f.rows if row.place == "on"] for f in self.ranking.fronts]
        return _in_turn([*self._ranked, *fronts], MOST_HIGHLIGHTED)

    def look(self, config_id: str) -> int | None:
        """Its colour, mark and dash in all plots; None for what is not highlighted."""
        return self.highlighted.index(config_id) if config_id in self.highlighted else None

    @cached_property
    def _ranked(self) -> list[list[str]]:
        """Of every ranking the configs that have a value, best first; of a night its builds, config by config."""
        if self.night is not None:
            return [list(self.night.names)]
        return [[row.config_id for row in r.rows if row.value is not None] for r in self.ranking.rankings]

    @cached_property
    def drawn(self) -> tuple[str, ...]:
        """Ids of the configs whose values are worked out for plots: of thousands the first of every ranking."""
        return _in_turn(self._ranked, MOST_DRAWN)

    @cached_property
    def workloads(self) -> tuple[WorkloadValues, ...]:
        """Values of the drawn configs."""
        drawn = set(self.drawn)
        return workloads_of(value for value in self.ranking.values if value.config_id in drawn)

    @property
    def picks(self) -> tuple[str, ...]:
        """Ids of the winners, each once."""
        return tuple(dict.fromkeys(r.winner.config_id for r in self.ranking.rankings if r.winner))

    @cached_property
    def places(self) -> tuple[tuple[str, LoadLevel], ...]:
        """Workloads and load levels that objectives look at (of a night: what decided it), each once, in order."""
        if self.night is not None:
            return self.night.places
        found: dict[tuple[str, LoadLevel], None] = {}
        for ranking in self.ranking.rankings:
            aim = Aim(ranking.metric, ranking.maximize, ranking.workload, ranking.level)
            for reading in aim.readings:
                level = reading.level or aim.level
                if level is not None:
                    found.setdefault((reading.workload or aim.workload, level))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class NightMaterial:
    """What a night's report begins with. `told`: as it was judged; a night without series where it was not
    (`is_judged`) or is a gap, of which `counts` and `measured` have what there is.
    """

    told: NightTold
    is_judged: bool
    counts: tuple[PairCount, ...] = ()
    measured: tuple[Measured, ...] = ()


@dataclass(frozen=True)
class RunMaterial:
    """A run as its directory has it. `events`: its journal, without what servers told of themselves.

    `root` is read, `place` is where readers find it: another one where a copy is read.
    """

    root: Path
    place: Path
    manifest: Mapping[str, Any]
    scenario: Scenario
    ranking: RunRanking
    parts: tuple[PartMaterial, ...]
    events: Sequence[Row] = field(repr=False, default=())
    night: NightMaterial | None = None

    @property
    def labels(self) -> dict[str, str]:
        """What its configs are called, by id, on all classes of hosts."""
        return {config_id: label for part in self.parts for config_id, label in part.labels.items()}

    @property
    def complete(self) -> bool:
        """Whether the run came to its end."""
        last = next((e for e in reversed(self.events) if e["event"] in ("run_ended", "trial_started")), None)
        return last is not None and last["event"] == "run_ended" and bool(last.get("complete"))

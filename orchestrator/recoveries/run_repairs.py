"""What repairs did to a run, as the ranking tells it: which config serves for which, what was tried. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.recoveries.failed_lineage import Change
from orchestrator.recoveries.lineages import Lineages
from orchestrator.recoveries.recovery import NoMove, Repair
from orchestrator.scenarios.scenario import Scenario
from orchestrator.sglang.options import SettingsFault
from orchestrator.trial import Repaired


@dataclass(frozen=True, slots=True)
class Attempt:
    """One repair of a config that died as well: what differs from the asked config, and what it died of."""

    config_id: str
    changes: tuple[tuple[str, Any, Any], ...]
    label: str

    def as_json(self) -> dict[str, Any]:
        return {"config_id": self.config_id, "changes": changes_json(self.changes), "label": self.label}


@dataclass(frozen=True, slots=True)
class Story:
    """What became of a config whose server died: `served_as` names the config that was measured for it, if one was.

    `suggestion` is a repair that was not made (mode suggest), `reason` why there was no further one.
    """

    config_id: str
    served_as: str | None
    attempts: tuple[Attempt, ...] = ()
    suggestion: tuple[Change, ...] = ()
    reason: str = ""


class RunRepairs:
    """The repairs of a run. `ends`: the ends of its trials as the journal tells them, oldest first."""

    def __init__(self, scenario: Scenario, ends: list[dict[str, Any]]) -> None:
        try:
            self._lineages: Lineages | None = Lineages(scenario, ends)
        except SettingsFault:  # a run of an earlier release, which refused less and repaired nothing
            self._lineages = None

    @property
    def repaired(self) -> Mapping[str, Repaired]:
        """Every repaired config by id, with where it comes from."""
        return self._lineages.repaired if self._lineages else {}

    def story(self, config_id: str, measured: Collection[str]) -> Story:
        """What followed the death of a config; `measured` are the configs with points."""
        if self._lineages is None:
            return Story(config_id, None)
        chain = self._lineages.chain(config_id)
        served = chain[-1] if chain and chain[-1] in measured else None
        died = [c for c in chain if c != served and self._lineages.died(c)]
        attempts = tuple(
            Attempt(c, self.repaired[c].changes if c in self.repaired else (), self._label(c)) for c in died
        )
        if chain and served is None and chain[-1] not in died:
            return Story(config_id, None, attempts, (), "its repair is not measured yet: --resume goes on with it")
        last = self._lineages.decided(chain[-1] if chain else config_id)
        match last.decision if last else None:
            case Repair(changes) if last and not last.is_applied:
                return Story(config_id, served, attempts, changes)
            case NoMove(reason):
                return Story(config_id, served, attempts, (), reason)
        return Story(config_id, served, attempts)

    def _label(self, config_id: str) -> str:
        last = self._lineages.decided(config_id) if self._lineages else None
        return last.failed.label if last else ""


def changes_json(changes: tuple[tuple[str, Any, Any], ...]) -> list[dict[str, Any]]:
    """(setting, asked, now) for machines; asked is null where it was left open."""
    return [{"name": name, "asked": asked, "now": now} for name, asked, now in changes]

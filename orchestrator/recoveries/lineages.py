"""Which config stands for which in a run, once servers died: repairs, and what was given up. Pure.

A lineage begins with a config of the sweep. Each repair of it is a new config; the last one stands for all before it,
in every repeat and after a resumption. No settings that died are started again, whichever lineage they come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from orchestrator.outcome import Failed, Infeasible, Measured, Outcome
from orchestrator.planning.planner import StandIn, trial_of
from orchestrator.recoveries.failed_lineage import Change, Needs, Situation, Try
from orchestrator.recoveries.failed_start import FailedStart
from orchestrator.recoveries.recovery import Again, Decision, NoMove, Repair, Rights, apply_changes, decide
from orchestrator.recoveries.remedies import Kind
from orchestrator.scenarios.engine_build import engine_of
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_recovery import KNOBS
from orchestrator.scenarios.sweep_space import expand
from orchestrator.scenarios.workload_traffic import is_open_loop, kinds_of, longest_request
from orchestrator.searches.asked_trials import FIRST_REFERENCE
from orchestrator.sglang.gpu_arch import arch_of_products
from orchestrator.sglang.options import canonical_name
from orchestrator.sglang.sglang_rules import RULED_ENGINES, broken_rule
from orchestrator.trial import EngineConfig, Repaired, Trial, freeze_settings

# Tokens of a request that are neither prompt nor answer: chat templates, drafts that are verified, rounding to pages.
RESERVED_TOKENS = 256
OPEN_LOOP_REQUESTS = 256


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was decided when a server died, and whether it is done. `into`: the config that stands in, if one does.

    `is_known`: that config runs anyway (the sweep has it, or another repair came to it): nothing is started for it.
    """

    decision: Decision
    failed: FailedStart
    is_applied: bool
    into: str | None = None
    is_known: bool = False

    def as_json(self) -> dict[str, Any]:
        """As the journal keeps it; `of_json` reads it."""
        told: dict[str, Any] = {"applied": self.is_applied, "into": self.into, "known": self.is_known}
        match self.decision:
            case Repair(changes):
                told |= {"kind": "repair", "changes": [change.as_json() for change in changes]}
            case Again(how):
                told |= {"kind": how.value}
            case NoMove(reason):
                told |= {"kind": "nothing", "reason": reason}
        return {**told, "failed": self.failed.as_json()}

    @classmethod
    def of_json(cls, told: Mapping[str, Any]) -> Recovery:
        decision: Decision
        if told["kind"] == "repair":
            decision = Repair(tuple(Change(**change) for change in told["changes"]))
        elif told["kind"] == "nothing":
            decision = NoMove(told["reason"])
        else:
            decision = Again(Kind(told["kind"]))
        return cls(decision, FailedStart.from_json(told["failed"]), told["applied"], told["into"], told["known"])


class Lineages:
    """The lineages of one run, on one class of its hosts. `past` are the ends of the trials there so far, as the
    journal tells them, oldest first. `asked`: configs that a search asked for; the sweep need not name them.
    """

    def __init__(
        self,
        scenario: Scenario,
        past: Iterable[Mapping[str, Any]] = (),
        host_class: str = "",
        asked: Iterable[EngineConfig] = (),
    ) -> None:
        self._scenario = scenario
        self._host_class = host_class
        # The search of a ceiling asks again for what died, to see it die again.
        self._is_ceiling = scenario.search.method == "ceiling"
        self._needs = needs_of(scenario)
        self._swept = _swept(scenario)
        self._asked: dict[str, EngineConfig] = {config.config_id: config for config in asked}
        self._made: dict[str, EngineConfig] = {}
        self._repaired: dict[str, Repaired] = {}
        self._into: dict[str, str] = {}
        self._spared: set[str] = set()
        self._dead: set[str] = set()
        self._served: set[str] = set()
        self._tries: dict[str, tuple[Try, ...]] = {}
        self._decided: dict[str, Recovery] = {}
        self._deaths: dict[str, Try] = {}
        for event in past:
            self._replay(event)

    @cached_property
    def _planned(self) -> dict[str, EngineConfig]:
        """The configs of the sweep; a run in which nothing dies does without."""
        return {config.config_id: config for config in expand(self._scenario)}

    def know(self, config: EngineConfig) -> None:
        """A search asks for this config."""
        self._asked[config.config_id] = config

    def _config(self, config_id: str) -> EngineConfig:
        known = self._made.get(config_id) or self._asked.get(config_id)
        return known if known is not None else self._planned[config_id]

    def _is_known(self, config_id: str) -> bool:
        return config_id in self._made or config_id in self._asked or config_id in self._planned

    def _replay(self, event: Mapping[str, Any]) -> None:
        config_id = event.get("config_id")
        if event.get("outcome") == "measured" and config_id:
            self._served.add(config_id)
        if event.get("outcome") == "infeasible" and config_id:
            self._dead.add(config_id)
        told = event.get("recovery")
        if told is not None and config_id and self._is_known(config_id):
            self._note(config_id, Recovery.of_json(told))

    def _note(self, config_id: str, recovery: Recovery) -> None:
        """Keep what was decided; of a repair that is made, the new config and what led to it."""
        self._decided[config_id] = recovery
        self._deaths[config_id] = Try(dict(self._config(config_id).settings), recovery.failed)
        if not isinstance(recovery.decision, Repair) or not recovery.is_applied or recovery.into is None:
            return
        died, changes = self._config(config_id), recovery.decision.changes
        self._into[config_id] = recovery.into
        if recovery.is_known:
            self._spared.add(config_id)
            return
        config = replace(died, settings=freeze_settings(apply_changes(dict(died.settings), changes)))
        self._made[config.config_id] = config
        self._repaired[config.config_id] = self._origin(config_id, config, changes)
        earlier = self._tries.get(config_id, ())
        self._tries[config.config_id] = (*earlier, Try(dict(died.settings), recovery.failed))

    def _origin(self, died_id: str, config: EngineConfig, changes: tuple[Change, ...]) -> Repaired:
        before = self._repaired.get(died_id)
        asked_id = before.asked_id if before else died_id
        asked, now = dict(self._config(asked_id).settings), dict(config.settings)
        names = [name for name, _, _ in before.changes] if before else []
        names += [change.name for change in changes if change.name not in names]
        differing = tuple((n, asked.get(n), now.get(n)) for n in names if asked.get(n) != now.get(n))
        return Repaired(asked_id, died_id, differing, "; ".join(f"{c.name}: {c.why}" for c in changes))

    def stand_in(self, config_id: str) -> StandIn:
        """What is to be run where this config is asked for."""
        seen = config_id
        while seen in self._into:
            if seen in self._spared:
                return StandIn(None)
            seen = self._into[seen]
        if seen in self._dead and seen not in self._served:
            return StandIn(None)
        return StandIn(self._config(seen), self._repaired.get(seen))

    def chain(self, config_id: str) -> tuple[str, ...]:
        """The configs that stood in for this one, in order."""
        seen = [config_id]
        while seen[-1] in self._into:
            seen.append(self._into[seen[-1]])
        return tuple(seen[1:])

    @property
    def repaired(self) -> Mapping[str, Repaired]:
        """Every repaired config of the run by id, with where it comes from."""
        return self._repaired

    def died(self, config_id: str) -> bool:
        """Whether a server of this config could not run by its nature."""
        return config_id in self._dead

    def decided(self, config_id: str) -> Recovery | None:
        """What was decided when a server of this config died last."""
        return self._decided.get(config_id)

    @property
    def stand_ins(self) -> dict[str, StandIn]:
        """Of every config of the sweep that died."""
        return {c: self.stand_in(c) for c in {*self._into, *self._dead} if c in self._planned}

    def trial_to_run(self, trial: Trial) -> Trial | None:
        """The trial itself, that of its stand-in, or None if it is spared."""
        config_id = trial.config.config_id
        if config_id not in self._into and config_id not in self._dead:
            return trial
        if self._is_ceiling and trial.repeat < FIRST_REFERENCE:
            return trial
        found = self.stand_in(config_id)
        if found.config is None:
            return None
        if found.config.config_id == config_id:
            return trial
        return trial_of(self._scenario, found.config, found.repaired, trial.repeat, self._host_class)

    def repaired_trials(self, repeats: Iterable[int] | None = None) -> list[Trial]:
        """Every trial of every repaired config of the run; `repeats` are those that were asked for."""
        repeats = range(self._scenario.measure.repeats) if repeats is None else tuple(repeats)
        made = [(self._made[c], repaired) for c, repaired in self._repaired.items()]
        return [
            trial_of(self._scenario, config, repaired, repeat, self._host_class)
            for config, repaired in made
            for repeat in repeats
        ]

    def after(self, trial: Trial, outcome: Outcome, failed: FailedStart | None, starts: int) -> Recovery | None:
        """Decide what follows the end of a trial, and remember it. `starts`: of this trial, unchanged, this one too."""
        config_id = trial.config.config_id
        if isinstance(outcome, Measured):
            self._served.add(config_id)
        if not isinstance(outcome, Infeasible | Failed) or failed is None:
            return None
        if isinstance(outcome, Infeasible):
            if config_id in self._into or (config_id in self._dead and config_id not in self._served):
                return None  # another repeat died before, and what follows is decided
            self._dead.add(config_id)
        recovery = self._decide(config_id, failed, starts)
        self._note(config_id, recovery)
        return recovery

    def _decide(self, config_id: str, failed: FailedStart, starts: int) -> Recovery:
        scenario, config = self._scenario, self._config(config_id)
        tries = self._tries.get(config_id, ())
        may_change = frozenset[str](scenario.recovery.may_change)
        now = Situation(dict(config.settings), failed, self._needs, may_change, tries, self._siblings(config))
        left = scenario.recovery.tries - len(tries)
        decision = decide(now, Rights(left, starts, lambda s: self._is_refused(config, s), self._swept))
        if not isinstance(decision, Repair):
            return Recovery(decision, failed, is_applied=isinstance(decision, Again))
        mode = recovery_mode(scenario)
        if scenario.engine.kind not in RULED_ENGINES or mode == "off":
            off = mode == "off"
            why = "recovery.mode is off" if off else f"Specsweep changes no settings of kind `{scenario.engine.kind}`"
            return Recovery(NoMove(why), failed, is_applied=False)
        if config_id in self._served:
            return Recovery(NoMove("another start of it served"), failed, is_applied=False)
        changed = apply_changes(dict(config.settings), decision.changes)
        into = replace(config, settings=freeze_settings(changed)).config_id
        applied = mode == "apply"
        return Recovery(
            decision,
            failed,
            applied,
            into if applied else None,
            applied and self._is_known(into),
        )

    def _siblings(self, config: EngineConfig) -> tuple[Try, ...]:
        """Deaths of configs that differ from this one in memory settings only: each tells where not to go."""

        def rest(config: EngineConfig) -> dict[str, Any]:
            return {name: value for name, value in config.settings if name not in KNOBS}

        others = [self._config(c) for c in self._deaths if c != config.config_id]
        alike = [other for other in others if other.env == config.env and rest(other) == rest(config)]
        return tuple(self._deaths[other.config_id] for other in alike)

    def _is_refused(self, config: EngineConfig, settings: Mapping[str, Any]) -> bool:
        """Whether settings died already, or are not what this release takes."""
        changed = replace(config, settings=freeze_settings(dict(settings)))
        if changed.config_id in self._dead:
            return True
        engine = engine_of(self._scenario, config.build)
        arch = arch_of_products(self._scenario.slots.accelerators)
        return broken_rule(settings, version=engine.version, arch=arch) is not None


def recovery_mode(scenario: Scenario) -> str:
    """What is done about deaths. A ceiling is one of the settings as they were asked: repairs are only suggested."""
    mode = scenario.recovery.mode
    return "suggest" if mode == "apply" and scenario.search.method == "ceiling" else mode


def needs_of(scenario: Scenario) -> Needs:
    """What the workloads ask of any server; prompts from a file may be of any length."""
    running = [level for workload in scenario.workloads for level in workload.concurrency]
    running += [w.max_concurrency or OPEN_LOOP_REQUESTS for w in scenario.workloads if is_open_loop(w)]
    if any(kind.dataset.startswith("file:") for workload in scenario.workloads for kind in kinds_of(workload)):
        return Needs(max(running), None)
    longest = max(map(longest_request, scenario.workloads))
    return Needs(max(running), -(-(longest * 11 // 10 + RESERVED_TOKENS) // 256) * 256)


def _swept(scenario: Scenario) -> frozenset[str]:
    """Settings that the sweep varies, under their names of today."""
    sweep = scenario.sweep
    groups: list[Mapping[str, Any]] = [sweep.axes, *sweep.zip, *sweep.configs, *sweep.include]
    return frozenset(canonical_name(name) for group in groups for name in group)

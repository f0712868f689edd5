"""Sequential halving on common blocks, with a noise guard and a screen before it: asks and is told. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from orchestrator.outcome import OUT_OF_GPU_MEMORY
from orchestrator.scenarios.scenario_search import Direction
from orchestrator.searches.asked_trials import FIRST_REFERENCE
from orchestrator.searches.first_configs import spread_order
from orchestrator.searches.halving_decision import Decision, HalvingRules, Plan, Verdict
from orchestrator.searches.memory_order import DIRECTIONS, needs_more
from orchestrator.searches.race import HeatMemo, RaceGoal, RaceRules, most_hopeful, overlooked
from orchestrator.searches.search import Ask, Step, Told
from orchestrator.searches.search_table import SearchTable, in_turns
from orchestrator.trial import EngineConfig

# From here on the last verdict points to what one can do.
_MUCH_OVERLOOKED = 0.1


class HalvingSearch:
    """Finds the best config for each of `goals`. `labels`: config id -> how steps call it."""

    def __init__(
        self,
        configs: Sequence[EngineConfig],
        goals: Sequence[RaceGoal],
        races: RaceRules,
        rules: HalvingRules,
        labels: Mapping[str, str],
        *,
        directions: Mapping[str, Direction] = DIRECTIONS,
    ) -> None:
        self._configs = {config.config_id: config for config in configs}
        self._goals, self._races, self._rules, self._labels = goals, races, rules, labels
        self._directions = directions
        self._first = {config_id: i for i, config_id in enumerate(spread_order(races.places))}
        self._table = SearchTable()
        self._needing: dict[str, dict[str, str]] = {}
        self._planned: Plan | None = None
        self._heats = HeatMemo()
        self._steps: list[Step] = []

    def tell(self, config: EngineConfig, repeat: int, told: Told) -> None:
        if config.config_id in self._configs:
            self._table.tell(config, repeat, told)
            self._planned = None

    def ask(self, slots: int) -> tuple[Ask, ...]:
        again, plan, left = self._table.recalled(), self._plan(), self._left()
        room = slots - self._table.waiting
        room = room if left is None else min(room, left)
        if room <= 0:
            return again
        fresh = self._first_starts(plan, room) if plan.open_ids else self._next_starts(plan)
        return (*again, *self._table.give(fresh[:room]))

    def recall(self, config: EngineConfig, repeat: int, *, broke: bool = False) -> None:
        if config.config_id in self._configs and not broke:
            self._table.recall(config, repeat)
            self._planned = None

    @property
    def done(self) -> bool:
        plan = self._plan()
        return not self._table.waiting and (self._left() == 0 or not (plan.wanted or plan.open_ids))

    @property
    def steps(self) -> tuple[Step, ...]:
        self._plan()
        return tuple(self._steps)

    @property
    def verdicts(self) -> Mapping[str, Verdict]:
        """Objective -> how it stands by now; at the end with what may have been overlooked."""
        verdicts = self._plan().verdicts
        return {g.name: self._ended(g, verdicts[g.name]) for g in self._goals} if self.done else verdicts

    def _ended(self, goal: RaceGoal, verdict: Verdict) -> Verdict:
        if verdict.winner is None:
            return verdict
        results = {c: [told for _, told in self._table.scored(c)] for c in self._configs}
        gone = self._gone()
        among = [c for c in self._configs if c not in gone and self._table.set_aside(c) is None]
        # Where tie-breakers decide, the pick need not be the best of the near-ties.
        picked = list(dict.fromkeys((verdict.winner, *verdict.finalists))) if goal.ties else [verdict.winner]
        risk = overlooked(goal, self._races, {c: of for c, of in results.items() if of}, picked, among)
        if risk is None:
            return verdict
        told = "<0.01" if risk < 0.01 else f"{risk:.2f}"
        whoever = "that any config is, started or not, if none need be like its neighbours"
        text = f"{verdict.text}. Probability {told} {whoever}"
        text += " (docs/search.md, `How far to trust it`)" if risk > _MUCH_OVERLOOKED else ""
        return replace(verdict, text=text, overlooked=risk)

    def _left(self) -> int | None:
        """Starts that the budget still allows."""
        most = self._rules.budget_trials
        return None if most is None else max(0, most - self._table.asked)

    def _plan(self) -> Plan:
        if self._planned is None:
            gone = self._gone()
            ids = list(self._configs)
            decision = Decision(
                self._table, ids, self._goals, self._races, self._rules, self._labels, gone, self._heats
            )
            self._planned = decision.plan()
            self._steps += [step for step in self._planned.steps if step not in self._steps]
        return self._planned

    def _first_starts(self, plan: Plan, room: int) -> list[Ask]:
        """Spread over the space while little is known, then the most hopeful of each race in turn."""
        pending = [c for c in self._configs if self._table.pending(c)]
        fresh = [c for c in plan.open_ids if not self._table.pending(c)]
        chosen: list[str] = []
        if plan.heats:
            racing = [now for now in plan.heats.values() if now is not None and not now.settled]
            chosen = in_turns([most_hopeful(now, fresh, pending, room) for now in racing])
        if not chosen and not (pending and plan.heats and None not in plan.heats.values()):
            chosen = sorted(fresh, key=self._first.__getitem__)
        return [Ask(self._configs[c], self._table.next_repeat(c), "first start") for c in dict.fromkeys(chosen)]

    def _next_starts(self, plan: Plan) -> list[Ask]:
        """Second starts of all before third ones of any: blocks stay common."""
        asks = []
        for config_id, starts in plan.wanted.items():
            have = sum(1 for repeat, _ in self._table.scored(config_id) if repeat < FIRST_REFERENCE)
            number = self._table.next_repeat(config_id)
            lacking = starts - have - self._table.pending(config_id)
            asks += [Ask(self._configs[config_id], number + i, f"start {have + i + 1}") for i in range(lacking)]
        return sorted(asks, key=lambda ask: ask.repeat)

    def _gone(self) -> dict[str, str]:
        """Config id -> why it cannot run: those that died, and those that need more memory than one that did."""
        gone: dict[str, str] = {}
        inferred: dict[str, str] = {}
        for config_id in self._configs:
            death = self._table.dead(config_id)
            if death is not None:
                gone[config_id] = f"{death.label}: {death.evidence}"
                if self._rules.infer and death.label in OUT_OF_GPU_MEMORY:
                    inferred |= self._needing_more(config_id)
        return {**{c: why for c, why in inferred.items() if not self._table.scored(c)}, **gone}

    def _needing_more(self, dead_id: str) -> dict[str, str]:
        """What need not be started since this one died; told once."""
        if dead_id not in self._needing:
            found = {}
            for config_id, config in self._configs.items():
                more = needs_more(config, self._configs[dead_id], self._directions)
                if more:
                    found[config_id] = f"not started: {self._labels[dead_id]} died with less {', '.join(more)}"
            self._needing[dead_id] = found
            if fresh := {c: why for c, why in found.items() if c not in self._table.told}:
                said = f"{self._labels[dead_id]} died for want of memory, so what needs more is left out ({len(fresh)})"
                self._steps.append(Step("inferred", said, fresh))
        return self._needing[dead_id]

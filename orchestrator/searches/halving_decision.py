"""What follows from the results of a halving search at one moment: starts that are wanted, who is out, who wins. Pure.

First starts: as many configs as it takes until nothing that was left out can be better by more than the margin. Rungs:
who is not beyond doubt behind is started again, 2, 4, ... times in all; one in `eta` goes on. Finalists are replicated
until the race is settled. A rung looks at the first starts of each config only, so a resumed run decides the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.plural import plural
from orchestrator.scenarios.config_label import listed
from orchestrator.searches.asked_trials import FIRST_REFERENCE
from orchestrator.searches.race import Heat, HeatMemo, RaceGoal, RaceRules
from orchestrator.searches.search import RACE_OVER, Scored, Step
from orchestrator.searches.search_table import SearchTable

# A winner is measured twice at least, so that it is not its luck that is told.
_FINAL_STARTS = 2


@dataclass(frozen=True, slots=True)
class HalvingRules:
    """The keys of the search, see scenario_search.SearchKeys."""

    eta: int = 3
    screen: bool = True
    infer: bool = True
    finalists: int = 3
    max_repeats: int = 8
    budget_trials: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one objective. `winner` is None if nothing was measured that passes; `settled`: nothing else can
    be better by more than the margin. `finalists`: best first. `risk`: the probability that one of them is, None if
    none; `overlooked`: that any config is, however little configs resemble their neighbours, told at the end.
    """

    objective: str
    winner: str | None
    finalists: tuple[str, ...]
    settled: bool
    risk: float | None
    text: str
    overlooked: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """`wanted`: config id -> how many starts in all. `open_ids`: configs that are still to be screened, with the heats
    that say which matter.
    """

    wanted: Mapping[str, int]
    steps: tuple[Step, ...]
    verdicts: Mapping[str, Verdict]
    open_ids: tuple[str, ...] = ()
    heats: Mapping[str, Heat | None] = field(default_factory=dict)


def first_count(races: RaceRules) -> int:
    """So many configs are told before the fit chooses: each axis needs a few."""
    return 4 * len(races.places.at) + 2


@dataclass
class Decision:
    """`gone`: config id -> why it cannot run; `labels`: config id -> how steps call it."""

    table: SearchTable
    config_ids: Sequence[str]
    goals: Sequence[RaceGoal]
    races: RaceRules
    rules: HalvingRules
    labels: Mapping[str, str]
    gone: Mapping[str, str]
    heats: HeatMemo
    _steps: list[Step] = field(default_factory=list)

    def plan(self) -> Plan:
        table = self.table
        unstarted = [
            c for c in self.config_ids if c not in self.gone and not table.scored(c) and table.set_aside(c) is None
        ]
        if unstarted and not self._may_choose():
            # Nothing is decided yet, so nothing need be fitted.
            return Plan({}, (), self._verdicts({g.name: None for g in self.goals}, {}), tuple(unstarted))
        first = self._results(1)
        heats = {g.name: self.heats.heat(g, self.races, first, unstarted) for g in self.goals}
        if unstarted and not self._screened(heats, set(unstarted)):
            return Plan({}, (), self._verdicts(heats, {}), tuple(unstarted), heats)
        if any(table.pending(c) for c in unstarted):
            return Plan({}, (), self._verdicts(heats, {}))
        dropped = {c: self._why_unstarted(c, heats) for c in unstarted}
        if dropped:
            told = f"{plural(len(dropped), 'config')} not started: none is better by much"
            self._steps.append(Step("screen", told, dropped))
        return self._rungs(heats)

    def _results(self, starts: int) -> dict[str, list[Scored]]:
        """The first so many measured starts of each config, and all of reference trials."""
        found = {}
        for config_id in self.config_ids:
            scored = self.table.scored(config_id)
            kept = [s for repeat, s in scored if repeat < FIRST_REFERENCE][:starts]
            kept += [s for repeat, s in scored if repeat >= FIRST_REFERENCE]
            if kept:
                found[config_id] = kept
        return found

    # --- first starts ---

    def _may_choose(self) -> bool:
        """Whether enough was told for the fit to choose what is started."""
        return self.rules.screen and len(self.table.told) >= first_count(self.races)

    def _screened(self, heats: Mapping[str, Heat | None], unstarted: set[str]) -> bool:
        """Whether no config that was not started matters to any race."""
        return all(now is not None and (now.settled or not unstarted & set(now.field)) for now in heats.values())

    def _why_unstarted(self, config_id: str, heats: Mapping[str, Heat | None]) -> str:
        told = []
        for name, now in heats.items():
            if now is None:
                continue
            behind, sd = now.gap(config_id)
            ahead = math.expm1(2 * sd - behind)
            told.append(f"{name}: {_behind(behind)} {self.labels[now.leader]}, at most {ahead:+z.1%}")
        return f"not started, predicted by its neighbours: {'; '.join(told)}"

    # --- rungs ---

    def _rungs(self, heats: Mapping[str, Heat | None]) -> Plan:
        fields = {name: self._measured(now) for name, now in heats.items()}
        lost = {name: self._lost(now) for name, now in heats.items()}
        starts = 1
        while True:
            lacking = self._lacking({c for of in fields.values() for c in of}, starts)
            if lacking:
                return Plan(lacking, tuple(self._steps), self._verdicts(heats, fields))
            results = self._results(starts)
            heats = {g.name: self.heats.heat(g, self.races, results, (), fields[g.name]) for g in self.goals}
            if starts >= _FINAL_STARTS and all(now is None or now.settled for now in heats.values()):
                break
            if starts >= self.rules.max_repeats:
                break
            fields = {name: self._kept(name, heats[name], of, starts, lost[name]) for name, of in fields.items()}
            lost = {name: [] for name in fields}
            final = all(len(of) <= self.rules.finalists for of in fields.values())
            starts = min(starts + 1 if final else 2 * starts, self.rules.max_repeats)
        if not self.table.waiting:
            for name, now in heats.items():
                self._end(name, now, [*fields[name], *lost[name]])
        return Plan({}, tuple(self._steps), self._verdicts(heats, fields))

    def _end(self, name: str, now: Heat | None, of: Sequence[str]) -> None:
        """Who is left behind when a race is over: all but the leader of a settled one, since the verdict holds of it,
        and the best of several finalists by their few trials is worse. Near-ties that a tie-breaker decides stay.
        """
        if now is None:
            return
        alone = now.settled and now.breaker is None
        kept = {now.leader} if alone else set(now.field)
        dropped = {c: self._why_dropped(now, c, c in now.field) for c in of if c not in kept}
        if dropped:
            self._steps.append(Step(RACE_OVER, f"{name}: {self.labels[now.leader]} leads", dropped, objective=name))

    def _lost(self, now: Heat | None) -> list[str]:
        """Those that were started once and are beyond doubt behind already."""
        return [] if now is None else [c for c in now.out if self.table.scored(c)]

    def _measured(self, now: Heat | None) -> list[str]:
        return [] if now is None else [c for c in now.field if self.table.scored(c)]

    def _lacking(self, ids: set[str], starts: int) -> dict[str, int]:
        """Of these configs, in the order of the space, those that have fewer starts and may get more."""
        return {c: starts for c in self.config_ids if c in ids and not self.table.done_with(c, starts, FIRST_REFERENCE)}

    def _kept(self, name: str, now: Heat | None, of: list[str], starts: int, lost: Sequence[str]) -> list[str]:
        """Who goes on to the next rung: one in eta of those that may be best, and the finalists at least; `lost` are
        told with those that do not.

        In the first rung nobody that is known by its own start alone goes for being in the slower part: one bad start
        must not do it. What its neighbours tell as well as another start would may.
        """
        if now is None:
            return []
        may_win = [c for c in now.field if c in set(of)]
        most = self.rules.finalists if now.settled else max(self.rules.finalists, math.ceil(len(of) / self.rules.eta))
        kept = may_win[:most]
        if starts == 1 and not now.settled:
            kept += [c for c in may_win[most:] if now.gap(c)[1] > now.standing.sigma]
        dropped = {c: self._why_dropped(now, c, c in may_win) for c in (*of, *lost) if c not in kept}
        if dropped:
            said = f"{name}: {len(kept)} of {len(of) + len(lost)} go on after {plural(starts, 'start')}"
            said += f"; {self.labels[now.leader]} leads" if "," in self.labels[now.leader] else ""
            self._steps.append(Step("rung", said, dropped, objective=name))
        return kept

    def _why_dropped(self, now: Heat, config_id: str, may_win: bool) -> str:
        behind, sd = now.gap(config_id)
        leader = self.labels[now.leader]
        if "," in leader:  # of a joint search it would fill the remarks of a hundred rows; the step tells it once
            leader = "the leader"
        by = f"{_behind(behind)} {leader}" + ("" if now.breaker is None else f" at tie-breaker {now.breaker + 1}")
        if not may_win:
            return f"{by} (standard error {sd:.1%}): beyond doubt"
        return f"{by}: not better by more than a near-tie" if now.settled else f"{by}: not among the faster"

    # --- verdicts ---

    def _verdicts(self, heats: Mapping[str, Heat | None], fields: Mapping[str, Sequence[str]]) -> dict[str, Verdict]:
        return {g.name: self._verdict(g, heats[g.name], fields.get(g.name, ())) for g in self.goals}

    def _verdict(self, goal: RaceGoal, now: Heat | None, of: Sequence[str]) -> Verdict:
        if now is None:
            return Verdict(goal.name, None, (), False, None, "nothing was measured that passes every limit")
        ranked = [c for c in now.field if c in set(of)] or [now.leader]
        risk = "<0.01" if now.risk < 0.01 else f"{now.risk:.2f}"
        text = (
            f"{self.labels[now.leader]} leads; probability {risk} that another finalist is better by more than "
            f"{-math.expm1(-goal.margin):.1%}"
        )
        if len(ranked) > 1 and now.settled:
            text += f"; within that, a tie with {listed([self.labels[c] for c in ranked if c != now.leader])}"
        return Verdict(goal.name, now.leader, tuple(ranked), now.settled, now.risk, text)


def _behind(logs: float) -> str:
    """`3.0 % behind`, or `ahead of`."""
    share = -math.expm1(-logs)
    return f"{share:.1%} behind" if share >= 0 else f"{-share:.1%} ahead of"

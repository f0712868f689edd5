"""Between the searches of a run and its loop: what they ask is started, what came of it is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

from orchestrator.happening import BestSoFar, SearchStep, TrialAsked
from orchestrator.objectives.aim import TrialPoints
from orchestrator.planning.planner import is_probed
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.scenarios.scenario import Scenario
from orchestrator.searches.asked_trials import FIRST_REFERENCE, AskedTrial
from orchestrator.searches.course import PointSpared
from orchestrator.searches.halving_decision import Verdict
from orchestrator.searches.point_need import Judge, point_need
from orchestrator.searches.search import Ask, Dead, Scored, Search, Step, Told
from orchestrator.sweeps.grid_leaders import best_so_far
from orchestrator.sweeps.trial_queue import TrialQueue
from orchestrator.sweeps.trial_score import TrialScores
from orchestrator.trial import Point, Trial


@dataclass
class _Race:
    """One search, on hosts of one class. `trials`: what each of its trials has measured so far; `ran_on`: where each of
    them ran.
    """

    search: Search
    judge: Judge | None
    outstanding: set[tuple[str, int]] = field(default_factory=set)
    steps_told: int = 0
    is_judged: bool = False
    trials: dict[tuple[str, int], TrialPoints] = field(default_factory=dict)
    ran_on: dict[tuple[str, int], str] = field(default_factory=dict)
    leaders: dict[str, tuple[str, float]] = field(default_factory=dict)


class SearchConductor:
    """One search for each class of hosts; on the thread that stores. `search_of` and `judge_of` make those of a class.

    Without a search (a grid, whose plan is known before) only the points of trials are decided. A judge says which
    further points of a trial cannot matter; without one all are measured.
    """

    def __init__(
        self,
        scenario: Scenario,
        run: RunDirectory,
        search_of: Callable[[str], Search | None],
        judge_of: Callable[[str], Judge | None] = lambda _: None,
    ) -> None:
        self._run = run
        self._search_of, self._judge_of = search_of, judge_of
        self._scores = TrialScores(scenario, run)
        self._is_probed = is_probed(scenario)
        self._is_night = scenario.search.method == "pairs"  # two builds do not lead each other
        self._races: dict[str, _Race] = {}
        self._deciding: AbstractContextManager[object] = nullcontext()
        self._queue: TrialQueue | None = None
        self.take_classes()

    def take_classes(self) -> None:
        """One search for each class of hosts that the run measures on by now: it may learn of them only when slots are
        granted. Those that are there stay, so that no trial is scored twice.
        """
        of_class = {c: self._races.get(c) or self._new_race(c) for c in self._run.trial_classes}
        fresh = of_class.keys() - self._races.keys()
        self._races = {c: race for c, race in of_class.items() if race is not None}
        for asked in list(self._run.asked.all):
            if asked.host_class in fresh & self._races.keys():
                told = self._tell(asked, again=True)
                if isinstance(told, Scored) and not self._is_night:
                    self._new_leaders(self._races[asked.host_class], asked, told)

    def _new_race(self, host_class: str) -> _Race | None:
        search = self._search_of(host_class)
        return None if search is None else _Race(search, self._judge_of(host_class))

    @property
    def done(self) -> bool:
        """Whether the searches need no more trials."""
        return all(race.search.done for race in self._races.values())

    def begin(
        self, queue: TrialQueue, deciding: AbstractContextManager[object]
    ) -> list[TrialAsked | SearchStep | BestSoFar]:
        """Ask for the first trials. `deciding`: held while anybody looks at what stands for what."""
        self._queue, self._deciding = queue, deciding
        leads: list[TrialAsked | SearchStep | BestSoFar] = []
        for host_class, race in self._races.items():
            queue.open_class(host_class)
            for (config_id, _), host in race.ran_on.items():
                queue.ran(host_class, host, config_id)
            leads += [
                best_so_far(goal, *race.leaders[goal.name], host_class)
                for goal in self._scores.goals
                if goal.name in race.leaders  # of earlier starts of the run
            ]
        return [*leads, *self.ask()]

    def settled(self, trial: Trial) -> list[TrialAsked | SearchStep | BestSoFar]:
        """A trial has ended for good, after all repairs and second tries; what its search wants now."""
        asked = self._asked(trial)
        race = self._races.get(trial.host_class)
        if race is None or asked is None:
            return []
        told = self._tell(asked)
        race.outstanding.discard((asked.config.config_id, asked.repeat))
        leads = self._new_leaders(race, asked, told) if isinstance(told, Scored) and not self._is_night else []
        return [*leads, *self._ask(trial.host_class, race)]

    def _new_leaders(self, race: _Race, asked: AskedTrial, told: Scored) -> list[BestSoFar]:
        """The objectives that this trial leads, and its config has not led before."""
        config_id, found = asked.config.config_id, []
        for goal in self._scores.goals:
            own = told.values[goal.name]
            leader, best = race.leaders.get(goal.name, (None, None))
            if own.value is None or not own.passes:
                continue
            if best is not None and (own.value <= best if goal.aim.maximize else own.value >= best):
                continue
            race.leaders[goal.name] = (config_id, own.value)
            if leader != config_id:
                found.append(best_so_far(goal, config_id, own.value, asked.host_class))
        return found

    def ask(self) -> list[TrialAsked | SearchStep | BestSoFar]:
        """What the searches want of the slots that are there now."""
        return [told for host_class, race in self._races.items() for told in self._ask(host_class, race)]

    def _asked(self, trial: Trial) -> AskedTrial | None:
        """What a trial, which may be that of a stand-in, was asked as."""
        return self._run.asked.find(trial.host_class, trial.asked_id, trial.repeat)

    def _tell(self, asked: AskedTrial, *, again: bool = False) -> Told | None:
        race, key = self._races[asked.host_class], (asked.config.config_id, asked.repeat)
        with self._deciding:
            ran = self._run.lineages_of(asked.host_class).trial_to_run(self._run.trial_of(asked))
            told, points = self._scores.told(asked, ran, again=again)
        if points is not None and isinstance(told, Scored):
            race.trials[key] = points
        if isinstance(told, Dead):
            race.trials.pop(key, None)
        if isinstance(told, Dead | Scored) and told.host:
            race.ran_on[key] = told.host
        if told is not None:
            race.search.tell(asked.config, asked.repeat, told)
        elif again and not asked.is_reference:
            broke = ran is not None and self._run.state.outcomes.get(ran.trial_id, {}).get("outcome") == "failed"
            race.search.recall(asked.config, asked.repeat, broke=broke)
        return told

    def _ask(self, host_class: str, race: _Race) -> list[TrialAsked | SearchStep | BestSoFar]:
        queue = self._queue
        assert queue is not None, "begin() comes first"
        asks = race.search.ask(max(1, queue.slots_of(host_class)))
        steps = race.search.steps[race.steps_told :]
        race.steps_told += len(steps)
        if race.search.done and not race.is_judged:
            race.is_judged = True
            steps = (*steps, *_verdict_steps(race.search))
        for step in steps:
            self._run.asked.step(step, host_class)
        trials = [self._trial(host_class, ask) for ask in asks]
        race.outstanding |= {ask.key for ask in asks}
        by_key = {ask.key: trial for trial, ask in zip(trials, asks, strict=True)}
        leaders = [by_key[ask.key] for ask in asks if ask.follows is None]
        followers = {by_key[ask.follows].trial_id: by_key[ask.key] for ask in asks if ask.follows is not None}
        queue.offer(host_class, leaders, followers, {by_key[ask.key].trial_id for ask in asks if ask.elsewhere})
        if not race.outstanding:
            queue.close_class(host_class)
        asked = [TrialAsked(trial, ask.why) for trial, ask in zip(trials, asks, strict=True)]
        return [*(SearchStep(step, host_class) for step in steps), *asked]

    def _trial(self, host_class: str, ask: Ask) -> Trial:
        asked = AskedTrial(ask.config, ask.repeat, host_class, ask.why)
        with self._deciding:
            self._run.lineages_of(host_class).know(ask.config)
            planned = self._run.trial_of(asked)
            ran = self._run.lineages_of(host_class).trial_to_run(planned) or planned
        self._run.asked.ask(asked)
        return replace(ran, points=tuple(p for p in ran.points if not self._run.is_finished(p)))

    def decides(self, trial: Trial) -> bool:
        """See `course.Course`."""
        race = self._races.get(trial.host_class)
        return self._is_probed or (race is not None and race.judge is not None and trial.repeat < FIRST_REFERENCE)

    def next_point(self, trial: Trial) -> tuple[Point | None, tuple[PointSpared, ...]]:
        """See `course.Course`: first what the trial has, by need where a judge knows it, then rates."""
        point, spared = self._planned_point(trial)
        if point is None and self._is_probed:
            _, point = self._scores.probed(self._run.whole(trial))
        return point, spared

    def _planned_point(self, trial: Trial) -> tuple[Point | None, tuple[PointSpared, ...]]:
        race, asked = self._races.get(trial.host_class), self._asked(trial)
        left = {(p.spec.workload, p.spec.level): p for p in trial.points if not self._run.is_finished(p)}
        if race is None or race.judge is None or asked is None or asked.is_reference:
            return next(iter(left.values()), None), ()
        config_id = asked.config.config_id
        # All points of the trial, also those that an earlier start of it measured.
        own = self._scores.points_of(config_id, self._run.whole(trial))
        others = [points for key, points in race.trials.items() if key != (config_id, asked.repeat)]
        race.trials[config_id, asked.repeat] = own
        need = point_need(self._scores.goals, others, own, tuple(left), race.judge)
        spared = tuple(PointSpared(left[place], why) for place, why in need.spared.items())
        for point in spared:
            self._run.asked.spare(point.point, point.reason)
        return (left[need.wanted[0]] if need.wanted else None), spared


def _verdict_steps(search: Search) -> list[Step]:
    """How each race stood when it ended; a ceiling has none, its steps are what it found."""
    verdicts: Mapping[str, Verdict] = getattr(search, "verdicts", {})
    steps = []
    for name, verdict in verdicts.items():
        is_early = verdict.risk is not None and not verdict.settled
        early = "; max_repeats or budget_trials ended it before it was settled" if is_early else ""
        steps.append(Step("verdict", f"{name}: {verdict.text}{early}", objective=name))
    return steps

"""What a trial came to, as searches are told: from the dataset and the journal of the run that goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.objectives.aim import PointValue, TrialPoints
from orchestrator.planning.planner import probe_point
from orchestrator.rankings.trial_facts import rate_goal, rates_seen, with_facts
from orchestrator.run_files import dataset
from orchestrator.run_files.point_table import measured_points
from orchestrator.run_files.run_configs import RunConfig
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.scenarios.scenario import Scenario
from orchestrator.searches.asked_trials import AskedTrial
from orchestrator.searches.point_need import Goal, Place, goals_of
from orchestrator.searches.rate_search import RateSeen, next_probe
from orchestrator.searches.search import Broken, Dead, ObjectiveValue, Scored, Told
from orchestrator.trial import Point, Trial


class TrialScores:
    """Reads each measured point once. Trials go by the config that was asked, also where a repair of it was served."""

    def __init__(self, scenario: Scenario, run: RunDirectory) -> None:
        self._scenario = scenario
        self._run = run
        self._read: dict[tuple[str, int], PointValue] = {}
        self.goals = goals_of(scenario)

    def points_of(self, asked_id: str, ran: Trial) -> TrialPoints:
        """All that was measured so far of a trial as it was run, with all its points."""
        return self._points(asked_id, self.probed(ran)[0])

    def _points(self, asked_id: str, ran: Trial) -> TrialPoints:
        row = dataset.read_trial(self._run.paths, ran.trial_id, self._run.state.attempts.get(ran.trial_id, 1))
        values = with_facts(self._scenario, [row] if row else [], self._values(ran, row))
        points: dict[Place, PointValue] = {(p.workload, p.level): p for p in values}
        host, facts = (values[0].host, values[0].facts) if values else ("", {})
        return TrialPoints(asked_id, ran.trial_id, host, points, facts)

    def probed(self, ran: Trial) -> tuple[Trial, Point | None]:
        """The trial with the points that were measured of the search over its rates, and the next one, if there is."""
        points = {point.point_id: point for point in ran.points}
        for workload in self._scenario.workloads:
            goal, seen = rate_goal(workload), list[RateSeen]()
            while goal is not None and (probe := next_probe(goal, seen)) is not None:
                point = probe_point(self._scenario, ran, workload, probe.rate_rps, probe.number)
                if point.point_id not in self._run.state.done_points:
                    return replace(ran, points=tuple(points.values())), point
                points[point.point_id] = point
                value = self._values(replace(ran, points=(point,)), None)
                seen += rates_seen(workload.name, value) or [RateSeen(probe.rate_rps, None)]
        return replace(ran, points=tuple(points.values())), None

    def _values(self, ran: Trial, row: Mapping[str, Any] | None) -> list[PointValue]:
        done = self._run.state.done_points
        wanted = [(p.point_id, done[p.point_id]) for p in ran.points if p.point_id in done]
        new = [key for key in wanted if key not in self._read]
        if new:
            rows = [load for key in new if (load := dataset.read_load(self._run.paths, *key)) is not None]
            version = row["engine_version"] if row else self._run.versions.get(ran.trial_id)
            config = RunConfig(ran.config.config_id, ran.config.as_dict(), dict(ran.config.env), (), version)
            for point in measured_points(self._run.paths, self._scenario, {config.config_id: config}, rows, dict(new)):
                self._read[point.load["point_id"], point.load["attempt"]] = point.value
        return [self._read[key] for key in wanted if key in self._read]

    def told(
        self, asked: AskedTrial, ran: Trial | None, *, again: bool = False
    ) -> tuple[Told | None, TrialPoints | None]:
        """What became of a trial, None while that is open; and what it has measured, where it is through.

        `ran`: it or what stands in for it, None: it is not started. `again`: what broke is tried again, as after a
        resumption.
        """
        if ran is None:
            return self._dead(asked), None
        end = self._run.state.outcomes.get(ran.trial_id, {})
        ran, probe = self.probed(ran)
        if probe is None and all(map(self._run.is_finished, ran.points)):
            points = self._points(asked.config.config_id, ran)
            return scored(self.goals, points, self._scenario.search.method != "ceiling"), points
        if end.get("outcome") == "infeasible":
            return Dead(end["label"], end["evidence"], end.get("host", "")), None
        if end.get("outcome") == "failed" and not again:
            return Broken(f"{end['label']}: {end['evidence']}"), None
        return None, None

    def _dead(self, asked: AskedTrial) -> Dead:
        """By the last config of its lineage whose end is known."""
        lineages = self._run.lineages_of(asked.host_class)
        for config_id in (*reversed(lineages.chain(asked.config.config_id)), asked.config.config_id):
            decided = lineages.decided(config_id)
            if decided is not None:
                return Dead(decided.failed.label, decided.failed.evidence)
        return Dead("unknown", "another start of it died")


def scored(goals: Sequence[Goal], trial: TrialPoints, by_value: bool = True) -> Told:
    """The value of each objective; Broken with the reasons where not one has any and something was void.

    Not `by_value`: that it served is all that counts.
    """
    values = {goal.name: _value(goal, trial) for goal in goals}
    if not trial.points:
        return Broken("none of its points can be read")
    void = sorted({reason for point in trial.points.values() for reason in point.void_reasons})
    if by_value and void and goals and all(value.value is None for value in values.values()):
        return Broken(f"void: {'; '.join(void)}")
    return Scored(trial.host, values)


def _value(goal: Goal, trial: TrialPoints) -> ObjectiveValue:
    seen = [(gate.limit, gate.aim.of_trial(trial)) for gate in goal.gates]
    passes = all(value is not None and limit.holds(value) for limit, value in seen)
    return ObjectiveValue(goal.aim.of_trial(trial), passes, tuple(tie.of_trial(trial) for tie in goal.ties))

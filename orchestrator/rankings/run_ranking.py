"""All that a run decided: a ranking per objective, and the configs that could not run or broke. Pure after reading."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orchestrator.errors import BadInput
from orchestrator.hosts.host_event import host_notes
from orchestrator.objectives.aim import PointValue
from orchestrator.objectives.scenario_objective import Objective
from orchestrator.paths import RunPaths, write_whole
from orchestrator.rankings.explanation import Explanation
from orchestrator.rankings.explanation_text import explanation_json
from orchestrator.rankings.not_measured import NotMeasured
from orchestrator.rankings.objective_text import cost_note
from orchestrator.rankings.pareto import ParetoFront, fronts_json, pareto_front
from orchestrator.rankings.ranking import rank
from orchestrator.rankings.ranking_json import ranking_bytes, row_json, spread_json
from orchestrator.rankings.ranking_row import Ranking
from orchestrator.rankings.run_explanation import Told, explanations_of
from orchestrator.rankings.trial_facts import winner_rates, with_facts
from orchestrator.recoveries.run_repairs import RunRepairs, changes_json
from orchestrator.run_files.journal import read_events, replay
from orchestrator.run_files.point_table import MeasuredPoint, missing_points
from orchestrator.run_files.run_configs import RunConfig, run_configs, same_servers
from orchestrator.run_files.run_manifest import read_manifest, stored_scenario
from orchestrator.run_files.run_notes import damage, open_notes, refused_slots, run_notes
from orchestrator.run_files.run_rows import RunRows
from orchestrator.scenarios.config_label import run_labels
from orchestrator.scenarios.night_scenario import is_night
from orchestrator.scenarios.scenario import Scenario
from orchestrator.searches.search_account import left_behind, search_notes, spared_values
from orchestrator.sglang.resolved_settings import SettingChange
from orchestrator.trial import Repaired


@dataclass(frozen=True, slots=True)
class Unkept:
    """Why the directory of a run took nothing of its ranking, and the points that are in no table there."""

    why: OSError
    points: tuple[MeasuredPoint, ...]


@dataclass(frozen=True, slots=True)
class RunRanking:
    """What `rank` prints, as a table or as JSON.

    `changes`: by config id, what its servers run otherwise than asked. `merged`: config id -> the config that stands
    for it in the rankings, since both came to the same server. `repaired`: configs that died as asked and were served
    after a repair; `repairs`: where each repaired config comes from. A run on hosts of several classes has a ranking
    for each in `parts`, with its `host_class`; `changes`, `merged`, `repairs` and `values` (what was ranked) are there.
    `search`: what a search decided, as the journal has it. `unkept`: why its directory took nothing of all this.
    """

    run: str
    engine: str
    configs: dict[str, dict[str, Any]]
    rankings: tuple[Ranking, ...]
    infeasible: tuple[NotMeasured, ...]
    failed: tuple[NotMeasured, ...]
    notes: tuple[str, ...] = ()
    changes: Mapping[str, tuple[SettingChange, ...]] = field(default_factory=dict)
    merged: Mapping[str, str] = field(default_factory=dict)
    repaired: tuple[NotMeasured, ...] = ()
    repairs: Mapping[str, Repaired] = field(default_factory=dict)
    host_class: str = ""
    parts: tuple[RunRanking, ...] = ()
    explanations: tuple[Explanation, ...] = ()
    values: tuple[PointValue, ...] = field(default=(), repr=False)
    fronts: tuple[ParetoFront, ...] = ()
    search: tuple[Mapping[str, Any], ...] = ()
    unkept: Unkept | None = field(default=None, repr=False, compare=False)

    @property
    def labels(self) -> dict[str, str]:
        """What its configs are called."""
        return run_labels(self.configs, self.repairs)

    def as_json(self) -> dict[str, Any]:
        """The documented form for machines (docs/ranking.md)."""
        return {
            "run": self.run,
            "engine": self.engine,
            "objectives": self._objectives_json(),
            "explain": self._explain_json(),
            "pareto": dict(fronts_json(self.fronts)),
            "repaired": [config.as_json() for config in self.repaired],
            "infeasible": [config.as_json() for config in self.infeasible],
            "failed": [config.as_json() for config in self.failed],
            "notes": list(self.notes),
            **({"search": list(self.search)} if self.search else {}),
        }

    def _objectives_json(self) -> dict[str, Any]:
        """By name; with the class of hosts behind it where there are several."""
        if self.parts:
            return {name: told for part in self.parts for name, told in part._objectives_json().items()}
        on = f" on {self.host_class}" if self.host_class else ""
        return {f"{ranking.objective}{on}": self._ranking_json(ranking) for ranking in self.rankings}

    def _explain_json(self) -> dict[str, Any]:
        """Why each winner won, under the names of `objectives`."""
        if self.parts:
            return {name: told for part in self.parts for name, told in part._explain_json().items()}
        on = f" on {self.host_class}" if self.host_class else ""
        return {f"{e.objective}{on}": explanation_json(e) for e in self.explanations}

    def same_as(self, config_id: str) -> list[str]:
        """Ids of the configs that a config stands for besides itself."""
        return [other for other, into in self.merged.items() if into == config_id]

    def stands_for(self, config_id: str) -> list[NotMeasured]:
        """The configs that died as asked and are served by this one."""
        return [c for c in self.repaired if c.served_as and self.merged.get(c.served_as, c.served_as) == config_id]

    def _ranking_json(self, ranking: Ranking) -> dict[str, Any]:
        rows = [row_json(row) for row in ranking.rows]
        for row in rows:
            row["changes"] = [change.as_json() for change in self.changes.get(row["config_id"], ())]
            row["same_server"] = [{"config_id": c, "settings": self.configs[c]} for c in self.same_as(row["config_id"])]
            repair = self.repairs.get(row["config_id"])
            row["repaired_from"] = repair.asked_id if repair else None
            row["repairs"] = changes_json(repair.changes) if repair else []
            row["stands_for"] = [c.config_id for c in self.stands_for(row["config_id"])]
        return {
            "metric": ranking.metric,
            "direction": "maximize" if ranking.maximize else "minimize",
            "workload": ranking.workload,
            "at": {ranking.level.kind: ranking.level.value} if ranking.level else {},
            **({"objective": ranking.objective, "host_class": ranking.host_class} if ranking.host_class else {}),
            "ranking": rows,
            "reason": ranking.reason,
            "spread": spread_json(ranking.spread),
            "notes": list(ranking.notes),
        }


def rank_run(root: Path, *, anew: bool = False) -> RunRanking:
    """Compute everything from the raw tables of a run, and store `points` and `ranking.json` where that can be.

    What an earlier ranking computed from the same files is used, unless it is to be done `anew`. A run on hosts of
    several classes is ranked once for each.
    """
    manifest = read_manifest(root)
    scenario = stored_scenario(root, manifest)
    paths = RunPaths(root)
    state = replay(read_events(paths.journal, without="server_ready"))  # each is 36 kB, and in `trials`
    classes = manifest.get("host_classes", ())
    parts, points = [], []
    with RunRows(paths, anew=anew) as read:
        asked, trials, loads = read.asked_configs(scenario), read.trials(), read.loads()
        for host_class in classes if len(classes) > 1 else ("",):
            own = [t for t in trials if not host_class or t.get("host_class") == host_class]
            configs = run_configs(scenario, own, asked)
            rows = (row for row in loads if not host_class or row.get("host_class") == host_class)
            found = read.points(scenario, configs, rows, state.done_points)
            repairs = RunRepairs(scenario, [e for e in state.ends if e.get("host_class", "") == host_class])
            spared = spared_values(state.of_search.spared.values(), (t["trial_id"] for t in own))
            made = (own, configs, found, spared, state.of_search.steps)
            parts.append(_assemble(paths.root.resolve().name, scenario, made, repairs, host_class))
            points += found
    notes = (*damage(missing_points(state.done_points, points)), *host_notes(state.of_hosts))
    first = parts[0]
    steps = tuple(state.of_search.steps)
    in_question = set(first.configs) - set(first.repairs)
    started = in_question & {trial["config_id"] for trial in trials}
    notes = (*notes, *search_notes(scenario.search.method, steps, len(in_question), len(started), done=state.ended))
    result = replace(first, notes=(*notes, *first.notes)) if len(parts) == 1 else _together(parts, notes)
    result, why = replace(result, search=steps), read.unkept
    try:
        write_whole(paths.ranking, ranking_bytes(result.as_json()))
    except OSError as fault:
        why = fault
    return result if why is None else replace(result, unkept=Unkept(why, tuple(points)))


def _together(parts: list[RunRanking], notes: tuple[str, ...]) -> RunRanking:
    """One ranking of all classes of hosts, which stay apart in it. A note that is true of all is told once."""
    own = [dict.fromkeys(part.notes) for part in parts]
    shared = [note for note in own[0] if all(note in other for other in own)]
    told = [f"{p.host_class}: {note}" for p in parts for note in p.notes if note not in shared]
    return RunRanking(
        run=parts[0].run,
        engine=parts[0].engine,
        configs={config_id: settings for part in parts for config_id, settings in part.configs.items()},
        rankings=tuple(ranking for part in parts for ranking in part.rankings),
        infeasible=tuple(config for part in parts for config in part.infeasible),
        failed=tuple(config for part in parts for config in part.failed),
        notes=(*notes, *shared, *told),
        repaired=tuple(config for part in parts for config in part.repaired),
        parts=tuple(parts),
        fronts=tuple(front for part in parts for front in part.fronts),
    )


def _assemble(
    run: str,
    scenario: Scenario,
    found: tuple[
        list[dict[str, Any]], dict[str, RunConfig], list[MeasuredPoint], list[PointValue], list[dict[str, Any]]
    ],
    repairs: RunRepairs,
    host_class: str,
) -> RunRanking:
    trials, configs, points, spared, steps = found
    settings = {config_id: config.settings for config_id, config in configs.items()}
    # A night judges each of its configs by itself, whatever they came to.
    standing = {config_id: config_id for config_id in configs} if is_night(scenario) else same_servers(configs)
    last: dict[str, dict[str, Any]] = {}
    for trial in trials:
        last[trial["trial_id"]] = trial
    measured = {standing[p.load["config_id"]] for p in points}
    served = {p.load["config_id"] for p in points}
    died = [
        c for c in _of_outcome(last, settings, "infeasible", repairs, served) if c.config_id not in repairs.repaired
    ]
    failed = _of_outcome(last, settings, "failed", repairs, served)
    rankable = {c: s for c, s in settings.items() if c in measured}
    values = with_facts(scenario, trials, [*(p.value for p in points), *spared])
    values = [replace(value, config_id=standing[value.config_id]) for value in values]
    labels = run_labels(settings, repairs.repaired)  # the same as in tables
    asked_as = _asked_as(standing, repairs, rankable)
    out = {o.name: left_behind(steps, o.name, host_class, asked_as) for o in scenario.objectives}
    rankings = rank_objectives(scenario, rankable, values, labels, out)
    rankings = tuple(replace(ranking, host_class=host_class) for ranking in rankings)
    told = Told(scenario, settings, trials, values, standing, repairs.repaired, died, labels)
    return RunRanking(
        run=run,
        engine=scenario.engine.kind,
        configs=settings,
        rankings=rankings,
        infeasible=tuple(replace(c, host_class=host_class) for c in died if c.served_as is None),
        failed=tuple(replace(c, host_class=host_class) for c in failed),
        notes=(
            *refused_slots(trials),
            *run_notes(scenario, configs, points),
            *filter(None, (cost_note(scenario),)),
            *winner_rates(scenario, rankings, values),
            *open_notes(configs, repairs),
        ),
        changes={config_id: changes for config_id in rankable if (changes := configs[config_id].changes)},
        merged={config_id: into for config_id, into in standing.items() if into != config_id},
        repaired=tuple(replace(c, host_class=host_class) for c in died if c.served_as is not None),
        repairs=repairs.repaired,
        host_class=host_class,
        explanations=explanations_of(rankings, told),
        values=tuple(values),
        fronts=tuple(replace(f, host_class=host_class) for f in rank_fronts(scenario, rankable, values)),
    )


def _asked_as(standing: Mapping[str, str], repairs: RunRepairs, rankable: Collection[str]) -> dict[str, list[str]]:
    """By the id of each row, the configs of the sweep that it stands for."""
    found: dict[str, list[str]] = {c: [] for c in rankable}
    for config_id, into in standing.items():
        if into in found:
            repair = repairs.repaired.get(config_id)
            found[into].append(repair.asked_id if repair else config_id)
    return found


def rank_objectives(
    scenario: Scenario,
    configs: dict[str, dict[str, Any]],
    values: list[PointValue],
    labels: dict[str, str] | None = None,
    out: Mapping[str, Mapping[str, str]] | None = None,
) -> tuple[Ranking, ...]:
    """One ranking per objective of the scenario; none of a night, whose two builds are judged, not chosen from.

    `out`: by objective, what a search left behind and why.
    """
    if is_night(scenario):
        return ()

    def ranked(objective: Objective) -> Ranking:
        workload = objective.workload or scenario.workloads[0].name
        left = (out or {}).get(objective.name)
        return rank(objective, configs, values, workload=workload, labels=labels, out=left)

    return tuple(ranked(objective) for objective in scenario.objectives)


def rank_fronts(
    scenario: Scenario, configs: dict[str, dict[str, Any]], values: list[PointValue]
) -> tuple[ParetoFront, ...]:
    """One for each of the scenario's fronts."""
    return tuple(pareto_front(front, list(configs), values, scenario.workloads[0].name) for front in scenario.pareto)


def _of_outcome(
    trials: dict[str, dict[str, Any]],
    settings: dict[str, dict[str, Any]],
    outcome: str,
    repairs: RunRepairs,
    served: Collection[str],
) -> tuple[NotMeasured, ...]:
    found: dict[str, NotMeasured] = {}
    for trial in trials.values():
        if trial["outcome"] == outcome:
            config_id = trial["config_id"]
            told = (trial["label"] or "", trial["phase"] or "", trial["evidence"] or "")
            found[config_id] = NotMeasured(config_id, settings[config_id], *told, repairs.story(config_id, served))
    return tuple(found.values())


def only_objective(ranking: RunRanking, name: str | None) -> RunRanking:
    """The ranking with one objective or front only; BadInput with the names there are."""
    if name is None:
        return ranking
    kept = tuple(r for r in ranking.rankings if r.objective == name)
    fronts = tuple(f for f in ranking.fronts if f.name == name)
    if not kept and not fronts:
        known = ", ".join(dict.fromkeys([*(r.objective for r in ranking.rankings), *(f.name for f in ranking.fronts)]))
        raise BadInput(f"--objective {name}: the run has {known}")
    parts = tuple(only_objective(part, name) for part in ranking.parts)
    explained = tuple(e for e in ranking.explanations if e.objective == name)
    return replace(ranking, rankings=kept, fronts=fronts, parts=parts, explanations=explained)

"""What a trial as a whole says to an objective: memory left, KV cache, simplicity, highest rate. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.objectives.aim import PointValue, fact_name
from orchestrator.outcome import Phase
from orchestrator.points.metric_names import WORKLOAD_METRICS
from orchestrator.rankings.ranking_row import Ranking
from orchestrator.scenarios.command_template import speculation_depth
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_engine import Engine
from orchestrator.scenarios.scenario_workload import Workload
from orchestrator.searches.rate_search import RateGoal, RateSeen, result
from orchestrator.sglang.options import known_options
from orchestrator.sglang.server_account import account_of

# Phases whose free memory is what is left once the KV cache is there; the last one that tells it counts.
_AFTER_POOL = frozenset({Phase.KV_POOL, Phase.STATE_POOL, Phase.GRAPH_TARGET, Phase.GRAPH_DRAFT, Phase.HTTP_BIND})


def with_facts(
    scenario: Scenario, trials: Iterable[Mapping[str, Any]], values: Sequence[PointValue]
) -> list[PointValue]:
    """The points with the facts of their trials. `trials` are rows of the table, in the order of their starts.

    Every probe of a trial must be among `values`: `max_rate_rps` follows from all of them.
    """
    facts: dict[str, dict[str, float]] = {}
    for row in trials:
        facts.setdefault(row["trial_id"], {}).update(start_facts(row, scenario.engine))
    absent: dict[str, dict[str, str]] = {}
    for workload in scenario.workloads:
        if (goal := rate_goal(workload)) is not None:
            _add_max_rates(workload.name, goal, values, facts, absent)
    return [
        replace(
            value,
            facts=facts.get(value.trial_id, {}),
            absent={**value.absent, **absent[value.trial_id]} if value.trial_id in absent else value.absent,
        )
        for value in values
    ]


def start_facts(row: Mapping[str, Any], engine: Engine) -> dict[str, float]:
    """TRIAL_METRICS of one row of `trials`; what its server did not tell is left out."""
    settings = json.loads(row["settings_json"])
    account = account_of(row)
    found = {"simplicity": simplicity(settings, engine)}
    free = [phase["free_gib"] for phase in row["phases"] or () if phase["phase"] in _AFTER_POOL]
    told = [gib for gib in free if gib is not None]
    if told:
        found["free_gib_after_capture"] = float(told[-1])
    if account is not None and account.kv_tokens:
        found["kv_tokens"] = float(account.kv_tokens)
    return found


def simplicity(settings: Mapping[str, Any], engine: Engine) -> float:
    """1 / (1 + settings given that differ from the default + draft tokens of a verify pass)."""
    options = known_options()
    given = sum(1 for name, value in settings.items() if name not in options or options[name].default != value)
    return 1.0 / (1 + given + _draft_tokens(settings, engine))


def _draft_tokens(settings: Mapping[str, Any], engine: Engine) -> int:
    if engine.kind == "command":
        depth = speculation_depth(engine, settings)
        return depth + 1 if depth else 0
    drafted = settings.get("speculative_num_draft_tokens")
    if isinstance(drafted, int):
        return drafted
    steps = settings.get("speculative_num_steps", 0)
    return steps + 1 if isinstance(steps, int) and steps else 0


def rate_goal(workload: Workload) -> RateGoal | None:
    """What is searched over the rates of a workload; None where nothing is."""
    keys = workload.max_rate
    return None if keys is None else RateGoal(keys.low, keys.high, keys.precision, keys.attainment)


def rates_seen(workload: str, values: Iterable[PointValue]) -> list[RateSeen]:
    """What the points of one trial say to the search over its rates, in their order. A void point is no answer."""
    return [
        RateSeen(
            rate_rps=value.level.value,
            good=None if value.void_reasons else value.metrics.get("attainment"),
            requests=None if value.void_reasons else value.metrics.get("attainment_n"),
            # Of all that has no value, only what a saturated point cannot tell has a reason here.
            saturated=not value.void_reasons and "attainment" in value.absent,
        )
        for value in values
        if value.workload == workload and value.level.kind == "rate"
    ]


def winner_rates(scenario: Scenario, rankings: Iterable[Ranking], values: Sequence[PointValue]) -> list[str]:
    """How each trial of a config that won by its highest rate came to that rate, with bounds, each trial once."""
    told: dict[tuple[str, str], str] = {}
    for ranking in rankings:
        if ranking.winner is None:
            continue
        searched = {r.workload or ranking.workload for r in ranking.aim.readings if r.metric in WORKLOAD_METRICS}
        for workload in scenario.workloads:
            goal = rate_goal(workload)
            if goal is None or workload.name not in searched:
                continue
            own = [value for value in values if value.config_id == ranking.winner.config_id]
            for trial_id in dict.fromkeys(value.trial_id for value in own):
                seen = rates_seen(workload.name, (value for value in own if value.trial_id == trial_id))
                told[workload.name, trial_id] = (
                    f"{ranking.objective}, trial {trial_id} of the best: {result(goal, seen).text}"
                )
    return list(told.values())


def _add_max_rates(
    workload: str,
    goal: RateGoal,
    values: Sequence[PointValue],
    facts: dict[str, dict[str, float]],
    absent: dict[str, dict[str, str]],
) -> None:
    of_trials: dict[str, list[PointValue]] = {}
    for value in values:
        of_trials.setdefault(value.trial_id, []).append(value)
    name = fact_name("max_rate_rps", workload)
    for trial_id, own in of_trials.items():
        found = result(goal, rates_seen(workload, own))
        own_facts = facts.setdefault(trial_id, {})
        own_facts[fact_name("max_rate_low_rps", workload)] = found.low_rps
        if found.high_rps is not None:
            own_facts[fact_name("max_rate_high_rps", workload)] = found.high_rps
        if found.rate_rps is not None:
            own_facts[name] = found.rate_rps
        else:
            absent.setdefault(trial_id, {})[name] = found.text

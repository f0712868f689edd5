"""A run as a side of a comparison. Pure after reading."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

from orchestrator.exchange.compared_side import ComparedConfig, Side, State
from orchestrator.exchange.run_environment import run_facts
from orchestrator.exchange.stored_run import StoredRun
from orchestrator.objectives.aim import PointValue
from orchestrator.objectives.expression import parse, readings
from orchestrator.objectives.limits import parse_limit
from orchestrator.points.bench_serving import read_bench_serving_line
from orchestrator.points.metric_names import METRICS
from orchestrator.run_files.run_configs import RunConfig
from orchestrator.scenarios.scenario import Scenario
from orchestrator.sglang.server_account import account_of

_STATES: Mapping[str, State] = {"measured": "served", "infeasible": "died", "failed": "failed"}


def run_side(run: StoredRun, name: str, lines: Iterable[Mapping[str, Any]] | None = None) -> Side:
    """Called `name`, with its own metrics; with `lines` (of bench_serving, one for each point in order) with those that
    another client would have told of the same requests.
    """
    values = list(run.values)
    notes = []
    if run.missing:
        notes.append(f"{name}: {len(run.missing)} measured points are lost: their files are damaged or gone")
    if lines is not None:
        told = [read_bench_serving_line(i, line) for i, line in enumerate(lines, 1)]
        values = [
            PointValue(v.config_id, v.workload, v.level, v.repeat, t.metrics, v.void_reasons, trial_id=v.trial_id,
                       host=v.host)
            for v, t in zip(values, told, strict=True)
        ]  # fmt: skip
        notes.append(f"{name}: its numbers are those that bench_serving would have told of the same requests")
    void = sum(1 for value in values if value.void_reasons)
    if void:
        notes.append(f"{name}: {void} of {len(values)} points are void and left out (`specsweep rank` says why)")
    trials: dict[str, list[Mapping[str, Any]]] = {}
    for trial in run.trials:
        trials.setdefault(trial["config_id"], []).append(trial)
    measured = {value.config_id for value in run.values}
    configs = {
        c: _config(config, run.labels[c], trials.get(c, ()), was_measured=c in measured)
        for c, config in run.configs.items()
    }
    return Side(
        name=name,
        kind=run.scenario.engine.kind,
        is_peer=False,
        emulated=_is_emulated(run),
        configs=configs,
        values=values,
        facts=run_facts(run.manifest, run.trials, run.hosts),
        scenario=run.scenario.model_dump(mode="json"),  # stored without secrets; all defaults, whatever release
        shapes=_shapes(values),
        notes=tuple(notes),
    )


def _config(
    config: RunConfig, label: str, starts: Iterable[Mapping[str, Any]], *, was_measured: bool
) -> ComparedConfig:
    """`starts`: rows of its trials in order; the last of each trial counts."""
    last = {trial["trial_id"]: trial for trial in starts}
    trials = [t for t in last.values() if t["outcome"] in _STATES]
    served = [t for t in trials if t["outcome"] == "measured" or t["points"]]
    broken = [t for t in trials if t not in served]
    state: State = "served" if served else _STATES[broken[-1]["outcome"]] if broken else "not run"
    if state == "not run" and was_measured:
        state = "served"  # its driver was killed before the trial ended
    accounts = [account for t in served if (account := account_of(t)) is not None]
    return ComparedConfig(
        config_id=config.config_id,
        label=label,
        settings=config.settings,
        state=state,
        death=_death(broken[-1]) if broken else "",
        starts=len(trials),
        deaths=sum(1 for t in broken if t["outcome"] == "infeasible"),
        kv_tokens=tuple(float(a.kv_tokens) for a in accounts if a.kv_tokens),
        start_s=tuple((t["host"], t["start_s"]) for t in served if t["start_s"] is not None),
        telling={name: value for account in accounts for name, value in account.telling.items()},
        identities=config.identities,
    )


def _death(trial: Mapping[str, Any]) -> str:
    where = f"{trial['label'] or 'no diagnosis'}" + (f" in {trial['phase']}" if trial["phase"] else "")
    return where + (f": {trial['evidence']}" if trial["evidence"] else "")


def _is_emulated(run: StoredRun) -> bool:
    """By the scenario, or by what a server says of itself."""
    accounts = (account for config in run.configs.values() for account in config.accounts)
    return run.scenario.engine.kind == "emulator" or any(account.engine for account in accounts)


def _shapes(values: Iterable[PointValue]) -> dict[str, tuple[float, float]]:
    """Mean tokens of prompts and answers, by workload."""
    found: dict[str, list[tuple[float, float]]] = {}
    for value in values:
        prompt, output = value.metrics.get("prompt_tokens_mean"), value.metrics.get("output_tokens_mean")
        if prompt and output:
            found.setdefault(value.workload, []).append((prompt, output))
    return {name: (fmean(s[0] for s in seen), fmean(s[1] for s in seen)) for name, seen in found.items()}


def objective_metrics(scenario: Scenario) -> list[str]:
    """Metrics of points that objectives and their limits look at."""
    texts = [o.maximize or o.minimize for o in scenario.objectives]
    texts += [parse_limit(limit).metric for o in scenario.objectives for limit in o.limits]
    found = [reading.metric for text in texts if text for reading in readings(parse(text))]
    return [metric for metric in dict.fromkeys(found) if metric in METRICS]


def least_near_tie(scenarios: Iterable[Scenario]) -> float | None:
    """The smallest difference that any of their objectives cares about; None without objectives."""
    return min((o.near_tie for scenario in scenarios for o in scenario.objectives if o.near_tie), default=None)

"""The configs of a run: as they were asked, as their servers came out, and which were the same server. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.scenarios.command_template import speculation_depth
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_workload import Workload
from orchestrator.scenarios.sweep_space import expand
from orchestrator.sglang.options import SettingsFault
from orchestrator.sglang.resolved_settings import SettingChange, identity_of, left_open
from orchestrator.sglang.server_account import ServerAccount, account_of
from orchestrator.sglang.speculation_proof import SpeculationAsk
from orchestrator.trial import SECRET_NAME, EngineConfig, without_passwords

# Whose settings say whether they speculate; of an attached server nothing was asked.
_STARTED = frozenset({"sglang", "emulator", "command"})

# Config id -> (settings, environment).
Asked = Mapping[str, tuple[dict[str, Any], Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class RunConfig:
    """One config of a run. `accounts` are what its servers said of themselves, one per start that became ready."""

    config_id: str
    settings: dict[str, Any]
    env: Mapping[str, str]
    accounts: tuple[ServerAccount, ...]
    version: str | None

    @property
    def changes(self) -> tuple[SettingChange, ...]:
        """What its servers changed silently; each change once, whichever start shows it."""
        found = [change for account in self.accounts for change in account.changes]
        return tuple(change for i, change in enumerate(found) if change not in found[:i])

    @property
    def identities(self) -> frozenset[str]:
        """Of its servers; more than one if hosts differ, none if no server gave an account."""
        build = {"build": str(self.settings["build"])} if "build" in self.settings else {}
        found = (identity_of(account.content, {**self.env, **build}) for account in self.accounts)
        return frozenset(identity for identity in found if identity is not None)


def run_configs(scenario: Scenario, trials: list[dict[str, Any]], known: Asked) -> dict[str, RunConfig]:
    """Every config of a run by id, in the scenario's order; `trials` are the rows of the `trials` table, `known` its
    `asked_configs`.
    """
    asked = dict(known)
    own: dict[str, list[dict[str, Any]]] = {}
    for trial in trials:
        own.setdefault(trial["config_id"], []).append(trial)
        if trial["config_id"] not in asked:
            _, own_env = asked.get(_repaired_from(trial), ({}, scenario.engine.env))
            asked[trial["config_id"]] = (json.loads(trial["settings_json"]), own_env)
    found = {}
    for config_id, (settings, own_env) in asked.items():
        starts = own.get(config_id, [])
        accounts = tuple(account for t in starts if (account := account_of(t)) is not None)
        version = next((t["engine_version"] for t in starts if t["engine_version"]), None)
        found[config_id] = RunConfig(config_id, settings, own_env, accounts, version)
    return found


def _repaired_from(trial: Mapping[str, Any]) -> str:
    """The config that a repaired one was asked as; no run of an earlier release has the column."""
    return str(json.loads(trial.get("repair_json") or "{}").get("asked_config", ""))


def asked_configs(scenario: Scenario) -> Asked:
    """Of the sweep, in its order: a driver that was killed may have measured a config without ending its trial."""
    if scenario.search.space:  # of what is drawn only draws are configs, and these are in the journal
        return {}
    try:
        configs: list[EngineConfig] = list(expand(scenario))
    except SettingsFault:  # a run of an earlier release, which refused less
        return {}
    return {c.config_id: (c.as_dict(), shown_env(c.env)) for c in configs}


def shown_env(env: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Without values of secrets, as a stored scenario has it: what is computed of it is kept in the run."""
    return {name: "***" if SECRET_NAME.search(name) else without_passwords(value) for name, value in env}


def same_servers(configs: Mapping[str, RunConfig]) -> dict[str, str]:
    """Config id -> id of the config that stands for it: the first that came to the same server."""
    first: dict[frozenset[str], str] = {}
    standing = {}
    for config_id, config in configs.items():
        identities = config.identities
        standing[config_id] = first.setdefault(identities, config_id) if identities else config_id
    return standing


def open_choices(configs: Mapping[str, RunConfig]) -> dict[str, dict[str, list[str]]]:
    """Settings that nobody gave but that came out differently: name -> value -> config ids."""
    served = {c: config for c, config in configs.items() if config.accounts}
    return left_open(
        {c: v.settings for c, v in served.items()}, {c: [a.telling for a in v.accounts] for c, v in served.items()}
    )


def speculation_asks(
    scenario: Scenario, configs: Mapping[str, RunConfig], drafted: Mapping[str, float]
) -> dict[tuple[str, str], SpeculationAsk]:
    """(config id, workload) -> what was asked of its server; empty where Specsweep did not start the servers.

    `drafted` has the tokens that each config drafted over the whole run, by servers that count them.
    """
    engine = scenario.engine
    if engine.kind not in _STARTED:
        return {}

    def ask(config: RunConfig, workload: Workload) -> SpeculationAsk:
        if engine.kind == "command":
            depth = speculation_depth(engine, config.settings)
            return SpeculationAsk.by_template(
                depth, engine.counters.drafted is not None, drafted.get(config.config_id, 0.0)
            )
        return SpeculationAsk.of(config.settings, workload.api, config.version)

    return {
        (config_id, workload.name): ask(config, workload)
        for config_id, config in configs.items()
        for workload in scenario.workloads
    }

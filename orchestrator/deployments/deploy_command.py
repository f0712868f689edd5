"""`specsweep deploy`: the winner of a run as something to start for good."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator import __version__
from orchestrator.deployments.deploy_containers import as_compose, as_manifests
from orchestrator.deployments.deploy_text import as_command, as_config_file, as_unit
from orchestrator.deployments.deployment import Deployment, service_name
from orchestrator.deployments.served_config import ServedConfig, Wish, deployment_of
from orchestrator.errors import BadInput
from orchestrator.nightly.night_pairs import build_names
from orchestrator.paths import RunPaths, user_file, write_whole
from orchestrator.plural import plural
from orchestrator.rankings.decided import decided_ranking, decided_row
from orchestrator.rankings.ranking_cells import value_text
from orchestrator.rankings.ranking_reason import probability
from orchestrator.rankings.ranking_row import Ranking, Row
from orchestrator.rankings.run_ranking import RunRanking
from orchestrator.rankings.shown_ranking import shown_ranking
from orchestrator.run_files import dataset
from orchestrator.run_files.run_manifest import read_manifest, stored_scenario
from orchestrator.scenarios.engine_build import of_build
from orchestrator.scenarios.night_scenario import is_night
from orchestrator.scenarios.scenario import Scenario
from orchestrator.supported_digits import shown
from orchestrator.trial import content_hash

FORMS: dict[str, Callable[[Deployment], str]] = {
    "command": as_command,
    "systemd": as_unit,
    "compose": as_compose,
    "k8s": as_manifests,
    "yaml": as_config_file,
}
EMULATED = (
    "EMULATED: no GPU was measured; these settings were chosen by a model of servers. Do not deploy them unmeasured."
)


@dataclass(frozen=True)
class DeployRequest:
    """The arguments of `deploy`, parsed."""

    run_dir: Path
    form: str
    objective: str | None = None
    host_class: str | None = None
    config: str | None = None
    host: str = "0.0.0.0"
    port: int = 30000
    image: str | None = None
    program: tuple[str, ...] | None = None
    name: str | None = None
    out: Path | None = None


def deploy(request: DeployRequest) -> tuple[str, tuple[str, ...]]:
    """The text, which is also written where `out` says, and what the user must be told besides."""
    deployment = chosen_deployment(request)
    if deployment.nnodes > 1 and request.form in {"compose", "k8s"}:
        raise BadInput(
            f"--as {request.form}: the server spans {deployment.nnodes} hosts, which this form cannot start together; "
            "take --as command or systemd on each host (NODE_RANK, DIST_INIT_ADDR)"
        )
    if request.form == "yaml" and not deployment.is_sglang:
        raise BadInput("--as yaml: is a --config file of SGLang, and this server is another one (engine.kind command)")
    text = FORMS[request.form](deployment)
    if request.out is not None:
        with user_file(f"--out {request.out}", "written"):
            write_whole(request.out, text.encode())
    return text, tuple(line for line in deployment.provenance if line == EMULATED)


def chosen_deployment(request: DeployRequest) -> Deployment:
    """The deployment of the winner, or of the config that was asked for."""
    _check_words(request)
    manifest = read_manifest(request.run_dir)
    scenario = stored_scenario(request.run_dir, manifest)
    result = shown_ranking(request.run_dir)
    run = Decided(manifest, scenario, result)
    rows = dataset.read_rows(RunPaths(request.run_dir), "trials")
    wish = Wish(request.host, request.port, request.image, request.program, request.name)
    if is_night(scenario):
        return build_deployment(run, _build_asked_for(request, scenario), rows, wish)
    ranking = decided_ranking(result, request.objective, request.host_class)
    row = decided_row(result, ranking, request.config)
    return row_deployment(run, ranking, row, rows, wish)


def _build_asked_for(request: DeployRequest, scenario: Scenario) -> str:
    """The id of the config of one build of a night, which picks neither."""
    names = build_names(scenario)
    found = [config_id for config_id in names if request.config and config_id.startswith(request.config)]
    if len(found) != 1 or request.objective is not None:
        known = ", ".join(f"`{config_id}` ({name})" for config_id, name in names.items())
        raise BadInput(
            f"{request.run_dir}: is a night: it judges a build and picks none. Give one with --config (and no "
            f"--objective): {known}; or deploy from a run of `specsweep run`"
        )
    return found[0]


@dataclass(frozen=True, slots=True)
class Decided:
    """A run that was ranked: its manifest, its scenario, its ranking."""

    manifest: Mapping[str, Any]
    scenario: Scenario
    result: RunRanking


def row_deployment(
    run: Decided, ranking: Ranking, row: Row, rows: Sequence[dict[str, Any]], wish: Wish | None = None
) -> Deployment:
    """The deployment of one row of a ranking. `rows`: of `trials`, at least those of its config. BadInput for what
    cannot be deployed.
    """
    own = _measured_starts(rows, row.config_id, ranking.host_class)
    served = _served(run.result, run.scenario, row.config_id, row.settings, own)
    told = (*_origin(run, run.scenario, row.config_id, served, own), *_reasons(run.result, ranking, row))
    return deployment_of(run.scenario, served, ranking.objective, told, wish or Wish())


def build_deployment(
    run: Decided, config_id: str, rows: Sequence[dict[str, Any]], wish: Wish | None = None
) -> Deployment:
    """The deployment of a config of one build of a night. BadInput where it never served."""
    own = _measured_starts(rows, config_id, "")
    if not own:
        raise BadInput(f"{run.result.run}: config {config_id} never served in it; see its Failures")
    # A night's configs have their build among the settings: it is the engine that served them, and no option.
    settings = dict(run.result.configs[config_id])
    build = str(settings.pop("build", ""))
    scenario = of_build(run.scenario, build)
    served = _served(run.result, scenario, config_id, settings, own)
    told = (
        *_origin(run, scenario, config_id, served, own),
        f"the {build} of a night, which picks nothing: specsweep rank RUN tells its verdict",
    )
    return deployment_of(scenario, served, build, told, wish or Wish())


def _check_words(request: DeployRequest) -> None:
    """What no form of a deployment can be called, or listen on: BadInput."""
    if request.name is not None and request.name != service_name(request.name):
        raise BadInput(
            f"--name {request.name!r}: is no name for all of systemd, Compose and Kubernetes (small letters, digits, "
            f"dashes, a letter first, at most 50); write e.g. {service_name(request.name or 'server')}"
        )
    for option, word in (("--host", request.host), ("--image", request.image)):
        if word is not None and not re.fullmatch(r"[A-Za-z0-9_.:/@%\[\]-]+", word):
            raise BadInput(
                f"{option} {word!r}: has letters that do not belong there; allowed: A-Z a-z 0-9 and _ . : / @ % - [ ]"
            )


def _measured_starts(rows: Sequence[dict[str, Any]], config_id: str, host_class: str) -> list[dict[str, Any]]:
    """The starts of the config that were measured, oldest first."""
    own = [r for r in rows if r["config_id"] == config_id and r["points"] and r["outcome"] != "infeasible"]
    return sorted((r for r in own if host_class in ("", r.get("host_class"))), key=lambda r: r["began_at"])


def _served(
    result: RunRanking, scenario: Scenario, config_id: str, settings: Mapping[str, Any], rows: list[dict[str, Any]]
) -> ServedConfig:
    values = (value for part in result.parts or (result,) for value in part.values if value.config_id == config_id)
    longest = [ms / 1000 for value in values if (ms := value.metrics.get("e2e_max_ms"))]
    speedup = scenario.engine.start_speedup if scenario.engine.kind == "emulator" else 1.0
    return ServedConfig(
        dict(settings),
        tuple(json.loads(r["resolved_json"]) for r in rows if r["resolved_json"]),
        tuple(r["start_s"] * speedup for r in rows if r["start_s"]),
        max(longest, default=None),
        next((r["engine_version"] for r in reversed(rows) if r["engine_version"]), None),
    )


def _origin(
    run: Decided, scenario: Scenario, config_id: str, served: ServedConfig, rows: list[dict[str, Any]]
) -> tuple[str, ...]:
    """Where the settings come from, a fact a line."""
    hosts = sorted({r.get("host_class") or "" for r in rows} - {""})
    days = dict.fromkeys(row["began_at"][:10] for row in (*rows[:1], *rows[-1:]))
    dates = " to ".join(days) or "at a time not told"
    return (
        *([EMULATED] if scenario.engine.kind == "emulator" else []),
        f"Written by specsweep {__version__} from run {run.manifest['run_id']}, config {config_id} "
        f"({run.result.labels.get(config_id, config_id)})",
        f"engine: {scenario.engine.kind} {served.version or '(version not told)'}; measured {dates} on "
        f"{', '.join(hosts) or 'hosts of one class'}",
        f"scenario {scenario.name}, hash {content_hash(run.manifest['scenario'])}; model {scenario.model.path}",
    )


def _reasons(result: RunRanking, ranking: Ranking, row: Row) -> tuple[str, ...]:
    """Why it is this config."""
    way = "highest" if ranking.maximize else "lowest"
    trials = f"{plural(row.trials, 'trial')}, {_how_sure(ranking, row)}"
    lines = [f"objective {ranking.objective}: {way} {ranking.aim} ({ranking.workload}): {value_text(row)} ({trials})"]
    if row.config_id != (ranking.winner.config_id if ranking.winner else None):
        lines.append(f"it is not the winner of {ranking.objective}")
    elif row.near and row.gap_to_best:
        lines.append(f"chosen among near-ties, {row.gap_to_best:.1%} behind the best value: specsweep explain says why")
    if row.config_id in result.repairs:
        lines.append(f"repaired: {result.repairs[row.config_id].text}")
    lines += [f"as it ran: {change}" for change in result.changes.get(row.config_id, ())]
    return tuple(lines)


def _how_sure(ranking: Ranking, row: Row) -> str:
    """The 95 % interval of the value, and how probable it is that no other is better."""
    if row.low is None or row.high is None:
        return "no interval: nothing is known of the spread of its starts"
    told = f"95%: {shown(row.low, row.low, row.high)} to {shown(row.high, row.low, row.high)}"
    told += ", noise within one run only" if ranking.spread.kind == "within_run" else ""
    return told if row.p_best is None else f"{told}, P(best) {probability(row.p_best)}"

"""`specsweep verify`: the winner of a run measured again beside its rivals, before anybody deploys it."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from orchestrator.decisions.head_to_head import LEVEL, Comparison, Verdict, compare, comparison_line, verdict_of
from orchestrator.decisions.verify_scenario import present_settings, swept_settings, verify_tree
from orchestrator.errors import BadInput, ScenarioError, SpecsweepError, TrialsFailed
from orchestrator.job_place import runs_parent
from orchestrator.objectives.aim import aim_of, observations, trials_of
from orchestrator.objectives.scenario_objective import Objective
from orchestrator.paths import user_file, write_whole
from orchestrator.rankings.decided import decided_ranking, decided_row
from orchestrator.rankings.explanation import runner_up
from orchestrator.rankings.ranking_row import Ranking
from orchestrator.rankings.run_ranking import RunRanking
from orchestrator.rankings.shown_ranking import shown_ranking
from orchestrator.redaction import holds_secrets
from orchestrator.run_files.run_manifest import differing_keys, new_run_root, read_manifest, stored_scenario
from orchestrator.scenarios.night_scenario import is_night
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_file import load_scenario, scenario_from_tree
from orchestrator.scenarios.sweep_space import config_of
from orchestrator.scenarios.yaml_tree import YamlTree
from orchestrator.sglang.options import SettingsFault
from orchestrator.sweeps.run_command import RunRequest, run
from orchestrator.terminal import print_json
from orchestrator.trial import EngineConfig


@dataclass(frozen=True)
class VerifyRequest:
    """The arguments of `verify`, parsed. `present` is a file or `name=value` words, `judge` a verification that ran."""

    run_dir: Path
    objective: str | None = None
    host_class: str | None = None
    config: str | None = None
    present: str | None = None
    repeats: int = 5
    address: str | None = None
    scenario: Path | None = None
    out: Path | None = None
    judge: Path | None = None
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class Contest:
    """Who is measured: config ids with their roles, winner first, and the scenario that measures them."""

    objective: Objective
    scenario: Scenario
    roles: Mapping[str, str]
    host_class: str
    tree: Mapping[str, Any] = field(repr=False)


def verify(request: VerifyRequest, console: Console) -> Verdict:
    """Measure, judge, print, store `verify.json` in the verification's run directory."""
    contest = contest_of(request)
    root = request.judge or _measure(request, contest, console)
    told = judge(root, contest, request.run_dir.resolve().name)
    if request.as_json:
        print_json(told, console)
    else:
        console.print()
        for line in told["text"]:
            console.print(line, markup=False, soft_wrap=True)
    file = root / "verify.json"
    with user_file(str(file), "written"):
        write_whole(file, json.dumps(told, indent=1).encode() + b"\n")
    return Verdict(told["verdict"])


def contest_of(request: VerifyRequest) -> Contest:
    """The winner (or the config that was named), its runner-up, and the present config; BadInput without a rival."""
    scenario = _scenario_of(request)
    if is_night(scenario):
        raise BadInput(
            f"{request.run_dir}: is a night, whose two builds were measured side by side already (its night.json has "
            "the verdict); give a run of `specsweep run`"
        )
    result = shown_ranking(request.run_dir)
    ranking = decided_ranking(result, request.objective, request.host_class)
    row = decided_row(result, ranking, request.config)
    second = runner_up(ranking, row)
    configs = [row.settings, *([second.settings] if second else [])]
    roles = ["winner" if row == ranking.winner else "chosen", *(["runner-up"] if second else [])]
    if request.present is not None:
        configs.append(_present(scenario, ranking.objective, _present_text(request.present)))
        roles.append("present")
    if len(configs) < 2:
        raise BadInput("there is no other config to compare with: give the one that you serve with now as --present")
    objective = next(o for o in scenario.objectives if o.name == ranking.objective)
    tree = verify_tree(scenario, objective, configs, request.repeats)
    try:
        derived = scenario_from_tree(YamlTree("verify", tree))
    except ScenarioError as fault:  # what was measured can be served: it is what the user gave
        if request.present is None:
            raise
        name = fault.key.rpartition("].")[2]
        raise BadInput(f"--present: {name}: {fault.message}") from None
    ids = [_id_of(derived, config, role) for config, role in zip(derived.sweep.include, roles, strict=True)]
    named: dict[str, str] = {}
    for config_id, role in zip(ids, roles, strict=True):
        named[config_id] = f"{named[config_id]} and {role}" if config_id in named else role
    if len(named) < 2:
        raise BadInput("--present: is the winner itself: there is nothing to compare")
    return Contest(objective, derived, named, ranking.host_class, tree)


def _scenario_of(request: VerifyRequest) -> Scenario:
    """The stored scenario; the one that is given where secrets are not stored."""
    manifest = read_manifest(request.run_dir)
    stored = stored_scenario(request.run_dir, manifest)
    if request.scenario is not None:
        given = load_scenario(request.scenario)
        if changed := differing_keys(given, stored):
            raise BadInput(
                f"--scenario {request.scenario}: is not what {request.run_dir} was asked (differs in: "
                f"{', '.join(changed)}); give the file as it was then"
            )
        return given
    if holds_secrets(manifest["scenario"]):
        raise BadInput(f"{request.run_dir}: its scenario has secrets, which no run keeps: give the file as --scenario")
    return stored


def _present(scenario: Scenario, objective: str, text: str) -> dict[str, Any]:
    """BadInput with the setting that cannot be served, before it is one of several configs."""
    settings = swept_settings(scenario, present_settings(text))
    goal = next(o for o in scenario.objectives if o.name == objective)
    try:
        scenario_from_tree(YamlTree("verify", verify_tree(scenario, goal, [settings], 2)))
    except ScenarioError as error:
        name = error.key.removeprefix("sweep.include[0]").removeprefix(".")
        raise BadInput(f"--present: {name}: {error.message}" if name else f"--present: {error.message}") from None
    return settings


def _present_text(given: str) -> str:
    with suppress(OSError, ValueError):
        if Path(given).is_file():
            return Path(given).read_text(encoding="utf-8")
    return given


def _id_of(scenario: Scenario, settings: Mapping[str, Any], role: str) -> str:
    try:
        config: EngineConfig = config_of(scenario, dict(settings))
    except SettingsFault as fault:
        raise BadInput(f"{'--present' if role == 'present' else role}: {fault.name}: {fault.message}") from None
    return config.config_id


def _measure(request: VerifyRequest, contest: Contest, console: Console) -> Path:
    """Run the contest as an ordinary run; what broke in it is told by the run itself and leaves pairs out."""
    handle, name = tempfile.mkstemp(prefix=f"{contest.scenario.name}-", suffix=".yaml")
    with os.fdopen(handle, "w", encoding="utf-8") as file:  # readable by the user only: it may hold secrets
        yaml.safe_dump(dict(contest.tree), file, sort_keys=False)
    root = request.out or new_run_root(contest.scenario.name, time.strftime("%Y%m%d-%H%M%S"), runs_parent())
    try:
        run(RunRequest(Path(name), request.address, run_dir=root, offers=False), console)
    except TrialsFailed as error:
        console.print(str(error), markup=False, soft_wrap=True)
    finally:
        Path(name).unlink(missing_ok=True)
    return root


def judge(root: Path, contest: Contest, of_run: str) -> dict[str, Any]:
    """The verdict over the points of a verification, as `verify.json` has it."""
    result = shown_ranking(root)
    objective, labels = contest.objective, result.labels
    rankings = [r for r in result.rankings if r.objective == objective.name]
    ranking = next((r for r in rankings if r.host_class == contest.host_class), rankings[0] if rankings else None)
    winner_id, *rivals = contest.roles
    if not labels.keys() & contest.roles.keys():
        raise BadInput(f"{root}: has none of the configs that are compared; is it a verification of {of_run}?")
    part = next((p for p in result.parts if ranking and p.host_class == ranking.host_class), result)
    aim = aim_of(objective, objective.workload or contest.scenario.workloads[0].name)
    seen = observations(aim, trials_of(part.values))
    merged = part.merged
    own = [o for o in seen if o.config_id == merged.get(winner_id, winner_id)]
    found: list[Comparison] = []
    missing, unknown = [], _winner_deaths(result, winner_id, contest.roles[winner_id])
    for rival in rivals:
        others = [o for o in seen if o.config_id == merged.get(rival, rival)]
        if merged.get(rival, rival) == merged.get(winner_id, winner_id):
            missing.append(f"{contest.roles[rival]} {labels.get(rival, rival)} came to the same server as the winner")
            continue
        compared = compare(rival, own, others, contest.roles[rival], maximize=aim.maximize, near_tie=objective.near_tie)
        if compared is None:
            died, why = _why_missing(result, rival, contest.roles[rival])
            (missing if died else unknown).append(why)
        else:
            found.append(compared)
    failed, doubtful = _failed_limits(ranking, merged.get(winner_id, winner_id))
    unknown += doubtful
    if not found and not failed:
        raise SpecsweepError(
            f"{root}: nothing can be judged: {'; '.join((*missing, *unknown)) or 'no start was paired'}.\n"
            f"Make what is missing: specsweep run --resume {root}\nThen: specsweep verify RUN --judge {root}"
        )
    verdict = verdict_of(found, failed, unknown)
    lines = _lines(contest, verdict, found, (*failed, *unknown, *missing), labels)
    return {
        "run": root.resolve().name,
        "of_run": of_run,
        "objective": objective.name,
        "verdict": verdict.value,
        "winner": winner_id,
        "near_tie": objective.near_tie,
        "confidence": LEVEL,
        "limits_failed": failed,
        "comparisons": [comparison.as_json() for comparison in found],
        "not_compared": missing,
        "not_known": unknown,
        "text": lines,
    }


def _lines(
    contest: Contest, verdict: Verdict, found: Sequence[Comparison], besides: Sequence[str], labels: Mapping[str, str]
) -> list[str]:
    winner_id, near_tie = next(iter(contest.roles)), contest.objective.near_tie
    said = {
        Verdict.CONFIRMED: "Confirmed",
        Verdict.REFUTED: "Refuted",
        Verdict.OPEN: f"Not told apart within near_tie ({near_tie:.1%})",
    }[verdict]
    head = f"{said}: {contest.objective.name}, {labels.get(winner_id, winner_id)} is"
    return [head, *(f"  {comparison_line(c, labels, near_tie)}" for c in found), *(f"  {line}" for line in besides)]


def _failed_limits(ranking: Ranking | None, winner_id: str) -> tuple[list[str], list[str]]:
    """(limits that the winner fails, those that it fails within noise)."""
    row = next((r for r in ranking.rows if r.config_id == winner_id), None) if ranking else None
    if row is None or row.value is None:
        return [], []
    doubtful = [text for text in row.doubtful if " failed within noise " in text]
    failed = [t for t in row.gates_failed if not any(d.startswith(f"{t.split(' (is ')[0]} failed ") for d in doubtful)]
    return [f"the winner fails a limit: {t}" for t in failed], [f"the winner's limit {t}" for t in doubtful]


def _winner_deaths(result: RunRanking, config_id: str, role: str) -> list[str]:
    """A winner that died in a start is not what one wants to deploy, however fast its other starts were."""
    died = [c for c in (*result.infeasible, *result.repaired) if c.config_id == config_id]
    return [f"the {role} {result.labels.get(config_id, config_id)} died in a start ({c.label})" for c in died[:1]]


def _why_missing(result: RunRanking, config_id: str, role: str) -> tuple[bool, str]:
    """(whether it died, so that it is no rival any more; the sentence)."""
    what = f"{role} {result.labels.get(config_id, config_id)} could not be compared"
    for config in (*result.infeasible, *result.repaired, *result.failed):
        if config.config_id == config_id:
            return config not in result.failed, f"{what}: it died ({config.label})"
    return False, f"{what}: too few of its starts were measured"

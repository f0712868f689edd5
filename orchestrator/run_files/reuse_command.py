"""`specsweep reuse`, and what `run` says and does about measurements of earlier runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from orchestrator.errors import BadInput
from orchestrator.plural import plural
from orchestrator.run_files.earlier_runs import earlier_runs, read_earlier, take_over
from orchestrator.run_files.reuse_match import Question, Reusable, reusable
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_file import load_scenario
from orchestrator.terminal import print_json


def show_reusable(
    scenario_file: Path, overrides: tuple[str, ...], runs: Path, *, as_json: bool, console: Console
) -> None:
    """List the runs below a folder that measured something of a scenario, and why others cannot be used."""
    scenario = load_scenario(scenario_file, overrides)
    if not runs.is_dir():
        raise BadInput(f"--runs {runs}: is no folder; give the one that holds your runs")
    found = sorted(earlier_runs(scenario, runs), key=lambda r: (bool(r.refusal), -r.count))
    if as_json:
        print_json([_json(r) for r in found], console)
        return
    if not found:
        console.print(f"No run below {runs} served {scenario.model.path} with engine.kind {scenario.engine.kind}")
    for one in found:
        line = f"{one.run.root}: {one.refusal}" if one.refusal else f"{_offer(one)}; take them: --reuse {one.run.root}"
        console.print(line, markup=False, soft_wrap=True)


def _json(found: Reusable) -> dict[str, object]:
    return {
        "run": found.run.root,
        "run_id": found.run.run_id,
        "points": found.count,
        "asked": found.asked,
        "host_classes": list(found.run.classes),
        "versions": list(found.run.versions),
        "refusal": found.refusal or None,
    }


def _offer(found: Reusable) -> str:
    build = f"SGLang {found.run.versions[0]}" if found.run.versions else "a server that does not tell its release"
    of = "" if found.asked is None else f" of {found.asked}"
    return (
        f"{found.count}{of} points were measured before in {found.run.root} (the same engine, settings "
        f"and workload; {build} on hosts of class {', '.join(found.run.classes)})"
    )


def offer_reuse(scenario: Scenario, directory: RunDirectory, console: Console) -> None:
    """Say that a run beside this one has measured some of it; nothing is taken unasked."""
    root = directory.paths.root
    found = [r for r in earlier_runs(scenario, root.parent, besides=root) if not r.refusal]
    best = max(found, key=lambda r: r.count, default=None)
    if best is not None:
        console.print(f"{_offer(best)}; add --reuse {best.run.root} to take them over", markup=False, soft_wrap=True)


def runs_to_reuse(scenario: Scenario, roots: Sequence[Path]) -> tuple[Reusable, ...]:
    """What is to be taken over, before anything starts; BadInput with the difference where it must not be."""
    question, found = Question(scenario), []
    for root in roots:
        one = reusable(question, read_earlier(root.expanduser()))
        if one.refusal:
            raise BadInput(f"--reuse {root}: {one.refusal}")
        found.append(one)
    versions = sorted({version for one in found for version in one.run.versions})
    if len(versions) > 1:
        raise BadInput(f"--reuse: the runs are of several releases: {', '.join(versions)}; give those of one")
    return tuple(found)


def take_over_all(directory: RunDirectory, found: Sequence[Reusable], console: Console) -> None:
    """Copy what was found into a new run and say so."""
    for one in found:
        count = take_over(directory, one)
        on = f"hosts of class {', '.join(one.run.classes)}"
        line = f"taken over from {one.run.root}: {plural(count, 'point')}; {on} measure the rest"
        console.print(line, markup=False, soft_wrap=True)

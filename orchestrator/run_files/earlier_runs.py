"""Earlier runs on disk: what they measured, and taking it over into a new one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from orchestrator.errors import BadInput
from orchestrator.paths import RunPaths, write_whole
from orchestrator.run_files import dataset
from orchestrator.run_files.journal import read_events, replay
from orchestrator.run_files.reuse_match import EarlierRun, EarlierStart, Question, Reusable, TakenTrial, reusable
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.run_files.run_manifest import read_manifest
from orchestrator.scenarios.scenario import Scenario

# A folder of runs may hold years of them; the newest are looked at.
MOST_RUNS = 50


def read_earlier(root: Path) -> EarlierRun:
    """What a run directory tells; BadInput if it is none."""
    manifest = read_manifest(root)
    paths = RunPaths(root)
    rows = dataset.read_rows(paths, "trials")
    starts = [
        EarlierStart(r["config_id"], r["repeat"], r["attempt"], r.get("host_class") or "", r["engine_version"])
        for r in rows
        if r["points"]
    ]
    void = {row["point_id"] for row in dataset.read_rows(paths, "points") if not row["valid"]}
    done = replay(read_events(paths.journal, without="server_ready")).done_points  # each is 36 kB
    classes = manifest.get("host_classes") or sorted({start.host_class for start in starts} - {""})
    points = {point_id: attempt for point_id, attempt in done.items() if point_id not in void}
    return EarlierRun(manifest["run_id"], str(root), manifest["scenario"], tuple(classes), starts, points)


def earlier_runs(scenario: Scenario, parent: Path, besides: Path | None = None) -> Iterator[Reusable]:
    """The runs below a folder that served the same model with the same kind of engine, newest first."""
    question = Question(scenario)
    manifests = sorted(parent.glob("*/manifest.json"), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in manifests[:MOST_RUNS]:
        if besides is not None and file.parent.resolve() == besides.resolve():
            continue
        try:
            told = read_manifest(file.parent)["scenario"]
            alike = told["model"]["path"] == scenario.model.path and told["engine"]["kind"] == scenario.engine.kind
            if alike:
                yield reusable(question, read_earlier(file.parent))
        except (BadInput, OSError, ValueError, KeyError, TypeError):
            continue  # no run, or one of another release: nothing to offer


def take_over(run: RunDirectory, found: Reusable) -> int:
    """Copy the measurements into a new run and count them as done; returns how many points.

    Hosts of another class are not used by the run from now on. BadInput if it is of another class already.
    """
    classes = found.run.classes
    if run.host_classes and set(run.host_classes) != set(classes):
        raise BadInput(
            f"--reuse {found.run.root}: was measured on hosts of class {', '.join(classes)}, another "
            f"run that is reused on {', '.join(run.host_classes)}; classes are never mixed: give runs of one"
        )
    run.keep_classes(classes)
    source = RunPaths(Path(found.run.root))
    rows = {(r["trial_id"], r["attempt"]): r for r in dataset.read_rows(source, "trials")}
    loads = {(r["point_id"], r["attempt"]): r for r in dataset.read_rows(source, "loads")}
    return sum(_take_trial(run, source, found.run, trial, rows, loads) for trial in found.taken)


_Rows = dict[tuple[str, int], dict[str, object]]


def _take_trial(
    run: RunDirectory, source: RunPaths, earlier: EarlierRun, taken: TakenTrial, trials: _Rows, loads: _Rows
) -> int:
    origin = {"reused_from": earlier.run_id}
    copied: dict[str, int] = {}
    for point_id, attempt in taken.points.items():
        if point_id in run.state.done_points or (point_id, attempt) not in loads:
            continue
        if not dataset.is_whole(source, point_id, attempt):
            continue
        dataset.write_load(run.paths, loads[point_id, attempt] | origin, attempt)
        new, old = (dataset.part_file(paths, "requests", point_id, attempt) for paths in (run.paths, source))
        write_whole(new, old.read_bytes())
        copied[point_id] = attempt
    if not copied:
        return 0
    trial_id = taken.trial.trial_id
    for attempt in sorted(set(copied.values())):
        if (trial_id, attempt) in trials:
            dataset.write_trial(run.paths, trials[trial_id, attempt] | origin)
    told = (row["engine_version"] for (of, _), row in trials.items() if of == trial_id)
    version = next((str(version) for version in told if version), None)
    run.take_over(taken.trial, copied, earlier.run_id, version)
    return len(copied)

"""How long the report of a run of many trials takes, and how large it is: the run is made here without servers.

python -m benchmarks.report_size [--quick] [--trials 500] [--levels 3] [--requests 100] [--dir FOLDER]
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import shutil
import tempfile
import time
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.rank_speed import no_waiting_for_the_disk, say
from benchmarks.simulated_slot import obeying_account, point_batch
from benchmarks.simulated_sweep import swept_scenario
from orchestrator.documents.report_markdown import markdown
from orchestrator.documents.report_page import page_html
from orchestrator.objectives.scenario_objective import At
from orchestrator.outcome import Diagnosis, Infeasible, Label, Measured, Phase, PhaseFact
from orchestrator.paths import RunPaths
from orchestrator.planning.planner import make_plan
from orchestrator.rankings.run_ranking import rank_run
from orchestrator.reports.run_report import run_report
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.run_files.run_tables import Place
from orchestrator.scenarios.scenario import Scenario
from orchestrator.server_start import ServerDied, ServerReady
from orchestrator.telemetry import GpuSample, Sample, ServerSample
from orchestrator.trial import ClientReport, Trial

SLOTS = 16
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
AIM_DOCUMENT_MB, AIM_PAGE_MB, AIM_S = 2.5, 6.0, 10.0


def scenario_of(trials: int, levels: int) -> Scenario:
    """Five depths by as many batch sizes as it takes."""
    sizes = list(range(1, math.ceil(trials / 5) + 1))
    axes = {"speculative_num_steps": [0, 1, 2, 3, 4], "max_running_requests": sizes}
    found = swept_scenario(axes, 1, [4**i for i in range(levels)])
    one = found.objectives[0]
    last = one.model_copy(update={"name": "many-users", "at": At(concurrency=4 ** (levels - 1))})
    return found.model_copy(update={"objectives": [one, last]})


def make_run(root: Path, scenario: Scenario, requests: int) -> int:
    """Write the whole run, one start in ten dead of memory; its points."""
    run = RunDirectory.create(root, scenario)
    plan = make_plan(scenario, SLOTS)
    free_at = [BEGAN] * SLOTS
    for number, trial in enumerate(plan.trials):
        slot = number % SLOTS
        free_at[slot] = _store(run, trial, f"h{slot}/0", free_at[slot], requests, dies=number % 10 == 9)
    run.close(complete=True)
    return sum(len(trial.points) for trial in plan.trials)


def _store(run: RunDirectory, trial: Trial, slot: str, began: datetime, requests: int, *, dies: bool) -> datetime:
    """One trial; when its slot is free again."""
    place = Place(slot, slot[:-2], ("0", "1"), began.isoformat())
    run.begin_trial(trial, 1, place)
    phases = _phases(dies=dies)
    if dies:
        text = f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {trial.config.speculation_depth}.00 GiB"
        diagnosis = Diagnosis(Label.OOM_GRAPH_DRAFT, Phase.GRAPH_DRAFT, text, 1042, 1)
        run.end_trial(trial, 1, Infeasible(diagnosis), ServerDied(trial.trial_id, diagnosis, phases, 80.0), place)
        return began + timedelta(seconds=85)
    account = obeying_account(trial.config.as_dict())
    server = ServerReady(trial.trial_id, "http://127.0.0.1:1", 1, 90.0, phases, account)
    run.server_ready(server)
    at = began + timedelta(seconds=92)
    for point in trial.points:
        speculates = trial.config.speculation_depth > 0
        run.append(point, 1, point_batch(point, 1, 0, requests, speculates=speculates, chunks=32))
        report = ClientReport(point.point_id, 30.0, 1.0, 0.5, 0.1, 4, requests, "duration")
        run.end_point(point, 1, report, replace(place, began_at=at.isoformat()))
        at += timedelta(seconds=40)
    run.end_trial(trial, 1, Measured(len(trial.points)), server, place)
    _store_telemetry(run, trial, began, (at - began).total_seconds())
    return at + timedelta(seconds=5)


def _phases(*, dies: bool) -> tuple[PhaseFact, ...]:
    """A start of 90 s, or one that dies in its last graphs."""
    free = {Phase.DIST_INIT: 94.3, Phase.WEIGHTS: 33.3, Phase.DRAFT_WEIGHTS: 31.7, Phase.KV_POOL: 14.1,
            Phase.GRAPH_TARGET: 6.4, Phase.GRAPH_DRAFT: 3.7}  # fmt: skip
    names = (Phase.LAUNCH, Phase.ARGS, Phase.SPAWN, *free, Phase.HTTP_BIND, Phase.WARMUP)
    found = [PhaseFact(name, 9.0 * i, 9.0 * (i + 1), free.get(name), "") for i, name in enumerate(names)]
    return tuple([*found[:8], replace(found[8], ended_s=None, free_gib=None)] if dies else found)


def _store_telemetry(run: RunDirectory, trial: Trial, began: datetime, lasted_s: float) -> None:
    """A sample a second, of two GPUs."""
    columns = {"trial_id": trial.trial_id, "attempt": 1, "config_id": trial.config.config_id, "slot": "h/0",
               "host": "h"}  # fmt: skip
    server = ServerSample(4, 0, 0, 4000, 0.1, 900.0, 0.0, 3.1, 5, 12.0, 2.0)
    samples = [
        Sample(float(s), began.timestamp() + s, float(s), server,
               tuple(GpuSample(gpu, 60.0 + s % 20, 95.6, 300.0 + s % 90, 600.0, 2400, 60, 90, (), 0) for gpu in "01"))
        for s in range(int(lasted_s))
    ]  # fmt: skip
    run.telemetry.append(columns, samples)
    run.telemetry.end(trial.trial_id, 1)


def measure(root: Path) -> None:
    """Rank, then report; say what each took."""
    began_s = time.perf_counter()
    ranking = rank_run(root)
    say(f"rank: {time.perf_counter() - began_s:.1f} s")
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    document = run_report(root, ranking)
    made_s, made_cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    size = len(json.dumps(asdict(document), separators=(",", ":"))) / 1e6
    say(f"document: {made_s:.1f} s ({made_cpu_s:.1f} s of CPU), {size:.2f} MB of JSON; aim {AIM_DOCUMENT_MB} MB")
    for section in document.sections:
        own = len(json.dumps(asdict(section), separators=(",", ":"))) / 1e3
        say(f"  {section.section_id}: {own:.0f} kB")
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    page, text = page_html(document), markdown(document)
    drawn_s, drawn_cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    say(f"page and Markdown: {drawn_s:.1f} s ({drawn_cpu_s:.1f} s of CPU), {len(page.encode()) / 1e6:.2f} MB and "
        f"{len(text.encode()) / 1e6:.2f} MB (aim {AIM_PAGE_MB} MB)")  # fmt: skip
    say(f"in all {made_s + drawn_s:.1f} s (aim {AIM_S:.0f} s)")
    say(f"RSS {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB at most")
    RunPaths(root).report.write_text(page, encoding="utf-8")


def main() -> None:
    """Make, rank, report, print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quick", action="store_true", help="50 trials")
    arguments.add_argument("--trials", type=int, default=500)
    arguments.add_argument("--levels", type=int, default=3, help="load levels, a point each")
    arguments.add_argument("--requests", type=int, default=100, help="requests of a point")
    arguments.add_argument("--dir", type=Path, help="use the run that is in this folder, or make it there and keep it")
    given = arguments.parse_args()
    folder = given.dir or Path(tempfile.mkdtemp(prefix="specsweep-report-"))
    try:
        root = folder / "run"
        if not RunPaths(root).manifest.exists():
            with no_waiting_for_the_disk():
                points = make_run(root, scenario_of(50 if given.quick else given.trials, given.levels), given.requests)
            say(f"{points} points made")
        measure(root)
    finally:
        if given.dir is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

"""How long `specsweep rank` takes and how much memory it needs on a run of many configs, made here without servers.

The run's files are written by the product's own code (without waiting for the disk): a real server's account of 36 kB
per trial, 100 requests a point, 32 chunks a request. Each ranking is a process of its own. `anew` keeps nothing of an
earlier ranking, `again` finds all of it.

    python -m benchmarks.rank_speed [--quick] [--configs 10000] [--levels 1] [--requests 100] [--dir FOLDER]
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from benchmarks.simulated_slot import obeying_account, point_batch
from benchmarks.simulated_sweep import swept_scenario
from orchestrator.outcome import Measured
from orchestrator.paths import RunPaths
from orchestrator.planning.planner import make_plan
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.run_files.run_tables import Place
from orchestrator.scenarios.scenario import Scenario
from orchestrator.server_start import ServerReady
from orchestrator.trial import ClientReport, Trial

CHUNKS, HOSTS = 32, 50
AIMS_S = {"anew": 60.0, "again": 10.0}
AIM_MIB = 500.0
# In a process of its own, so that its memory is its own: ranks, and tells seconds, and the MiB of itself and of its
# largest child.
_RANK = """
import json, resource, sys, time
from pathlib import Path
began = time.perf_counter()
from orchestrator.rankings.run_ranking import rank_run
ranked = rank_run(Path(sys.argv[1]), **json.loads(sys.argv[2]))
taken = time.perf_counter() - began
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
cpu = sum(u.ru_utime + u.ru_stime for u in used)
print(json.dumps([taken, cpu, *(u.ru_maxrss / 1024 for u in used), len(ranked.rankings[0].rows)]))
"""


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def scenario_of(configs: int, levels: int) -> Scenario:
    """Four depths by as many batch sizes as it takes."""
    sizes = list(range(1, math.ceil(configs / 4) + 1))
    return swept_scenario(
        {"speculative_num_steps": [0, 1, 2, 3], "max_running_requests": sizes}, 1, [2**i for i in range(levels)]
    )


@contextmanager
def no_waiting_for_the_disk() -> Iterator[None]:
    with patch("os.fsync", lambda _: None):
        yield


def make_run(root: Path, scenario: Scenario, requests: int) -> int:
    """Write the whole run; its points."""
    run = RunDirectory.create(root, scenario)
    trials = make_plan(scenario, HOSTS).trials
    for number, trial in enumerate(trials):
        _store(run, trial, number, requests)
    run.close(complete=True)
    return sum(len(trial.points) for trial in trials)


def _store(run: RunDirectory, trial: Trial, number: int, requests: int) -> None:
    host, began_at = f"h{number % HOSTS}", f"2026-01-01T00:00:{number:09d}"
    place = Place(f"{host}/0", host, ("0",), began_at)
    settings = trial.config.as_dict()
    server = ServerReady(trial.trial_id, "http://127.0.0.1:1", 1, 60.0, (), obeying_account(settings))
    run.begin_trial(trial, 1, place)
    run.server_ready(server)
    for point in trial.points:
        speculates = settings.get("speculative_num_steps", 0) != 0
        run.append(point, 1, point_batch(point, 1, 0, requests, speculates=speculates, chunks=CHUNKS))
        run.end_point(point, 1, ClientReport(point.point_id, 30.0, 1.0, 0.5, 0.1, 4, requests, "duration"), place)
    run.end_trial(trial, 1, Measured(len(trial.points)), server, place)


def ranked(root: Path, what: str, **options: object) -> None:
    """Rank in a process of its own; say what it took."""
    found = subprocess.run(
        [sys.executable, "-c", _RANK, str(root.absolute()), json.dumps(options)],
        capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1],
    )  # fmt: skip
    taken_s, cpu_s, own_mib, child_mib, rows = json.loads(found.stdout)
    aim_s = AIMS_S.get(what)
    aim = "" if aim_s is None else f"; aims {aim_s:.0f} s and {AIM_MIB:.0f} MiB"
    say(f"rank {what}: {taken_s:.1f} s, {cpu_s:.1f} s of CPU, {rows} rows{aim}")
    say(f"  RSS {own_mib:.0f} MiB at most, {child_mib:.0f} of its largest child")


def main() -> None:
    """Make, rank, print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quick", action="store_true", help="400 configs")
    arguments.add_argument("--configs", type=int, default=10_000)
    arguments.add_argument("--levels", type=int, default=1, help="load levels, a point each")
    arguments.add_argument("--requests", type=int, default=100, help="requests of a point")
    arguments.add_argument("--dir", type=Path, help="use the run that is in this folder, or make it there and keep it")
    given = arguments.parse_args()
    scenario = scenario_of(400 if given.quick else given.configs, given.levels)
    folder = given.dir or Path(tempfile.mkdtemp(prefix="specsweep-rank-"))
    try:
        root = folder / "run"
        if not RunPaths(root).manifest.exists():
            began_s = time.perf_counter()
            with no_waiting_for_the_disk():
                points = make_run(root, scenario, given.requests)
            say(f"{points} points made in {time.perf_counter() - began_s:.0f} s")
        ranked(root, "anew", anew=True)
        ranked(root, "again")
    finally:
        if given.dir is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

"""What telling how a run goes costs its driver: one view, as `live.json` every second, and one batch of a slot.

CPU milliseconds of the whole process. The thread that stores what slots report never waits for the file; it may wait
for a view.
"""

from __future__ import annotations

import io
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from orchestrator.happening import BatchArrived, PointBegan, TrialBegan
from orchestrator.paths import write_whole
from orchestrator.planning.planner import Plan, make_plan
from orchestrator.scenarios.scenario import Scenario
from orchestrator.watching.live_file import live_bytes
from orchestrator.watching.live_table import live_table
from orchestrator.watching.progress import Progress
from tests.fakes.slot import request_batch
from tests.orchestrator.scenario_samples import small_scenario

_ROUNDS = 50


def _scenario(configs: int) -> Scenario:
    requests = list(range(8, 8 + configs // 10))
    axes = {"speculative_num_steps": list(range(10)), "max_running_requests": requests}
    return small_scenario(sweep={"axes": axes})


def _busy(plan: Plan, names: list[str]) -> Progress:
    """All slots measure, every other trial waits."""
    progress = Progress(plan, names, Console(file=io.StringIO()))
    for name, trial in zip(names, plan.trials, strict=False):
        progress.saw(name, TrialBegan(trial, 1, ""))
        progress.saw(name, PointBegan(trial.points[0]))
    return progress


def _median_ms(work: Callable[[], object]) -> float:
    times = []
    for _ in range(_ROUNDS):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return 1000 * statistics.median(times)


def main() -> None:
    """Print a row per size."""
    print("slots  trials  view ms  file KiB  view + write ms  terminal ms  batch us")  # noqa: T201
    for slots, configs in ((8, 100), (64, 500), (200, 5000), (500, 5000)):
        plan = make_plan(_scenario(configs), slots)
        names = [f"host-{i // 8}/{i % 8}" for i in range(slots)]
        progress = _busy(plan, names)
        point = plan.trials[0].points[0]
        batch = BatchArrived(point, 1, request_batch(point, 1, 0, 50))
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "live.json"

            def write(progress: Progress = progress, file: Path = file) -> None:
                told = replace(progress.view(), told_unix_s=time.time())
                write_whole(file, live_bytes(told), durable=False)

            view, whole = _median_ms(progress.view), _median_ms(write)
            shown = _median_ms(lambda p=progress: live_table(p.view(), 120, 40))  # type: ignore[misc]
            one = _median_ms(lambda p=progress, n=names[0], b=batch: p.saw(n, b))  # type: ignore[misc]
            kib = file.stat().st_size / 1024
        print(  # noqa: T201
            f"{slots:5d}  {len(plan.trials):6d}  {view:7.2f}  {kib:8.0f}  "
            f"{whole:15.2f}  {shown:11.2f}  {1000 * one:8.0f}"
        )


if __name__ == "__main__":
    main()

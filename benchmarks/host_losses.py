"""Lose parts of a cluster while a run goes on, one by one, and tell what that cost: the table of docs/failures.md.

    python -m benchmarks.host_losses [--only NAME ...] [--seed N] [--untuned] [--keep FOLDER]

One rig of hosts in namespaces (benchmarks/host_rig.py) for all of them: a head, which has the driver, two hosts with a
GPU, and one for load. Each loss has a run of its own, of four configs with two points each, and hits while a point is
measured on the second GPU host. Afterwards the run is resumed if it did not complete, and held to: every point and
request once, all configs ranked, no process with our mark on any host. Exits with 1 if anything was lost or left.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow.dataset as ds

from benchmarks.host_rig import HostRig, inner
from benchmarks.loss_kinds import LOSSES, SMALL, Loss, scratch
from benchmarks.loss_scene import SCENARIO, Scene, faults_of
from benchmarks.rig_network import why_impossible

_BEGIN_S = 90.0
_RUN_S = 300.0
_LEFT_S = 60.0


@dataclass
class Told:
    """What a loss cost. Seconds are from the loss on; None where it did not come to that."""

    name: str
    exit_code: int | None
    detected_s: float | None
    gone_s: float | None
    done_s: float | None
    starts: int
    points_before: int
    resumed: bool
    partial_rows: int
    faults: list[str] = field(default_factory=list)
    said: str = ""


def _within(limit_s: float, condition: Callable[[], object]) -> float | None:
    """Seconds until it holds; None if it does not."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > limit_s:
            return None
        time.sleep(0.1)
    return time.monotonic() - began


def suffer(rig: HostRig, loss: Loss, scenario: Path, rng: random.Random) -> Told:
    """One run with one loss."""
    victim = rig.hosts[2]
    scene = Scene(rig, victim, scenario, rig.folder / loss.runs / loss.slug)
    if _within(_BEGIN_S, lambda: scene.trial_on_victim() or scene.driver.poll() is not None) is None:
        raise RuntimeError("no server on the second host")
    time.sleep(rng.uniform(0.5, 2.5))
    start = scene.trial_on_victim()
    if start is None:
        said, complained = scene.driver.communicate()
        raise RuntimeError(f"{said}{complained}")
    before = len(scene.events("point_done"))
    began = time.monotonic()
    loss.act(scene)
    told = _watch(scene, loss, start, began)
    told.points_before = before
    if loss.repair is not None and loss.after_s is None:
        loss.repair(scene)
    _resume(scene, told)
    return told


def _watch(scene: Scene, loss: Loss, start: dict[str, Any], began: float) -> Told:
    """Until the driver has ended and the server that was hit is gone; what came when."""
    detected = gone = done = None
    repaired = loss.after_s is None
    while (done is None or gone is None or not repaired) and time.monotonic() - began < _RUN_S:
        now = time.monotonic() - began
        if not repaired and loss.after_s is not None and now >= loss.after_s and loss.repair is not None:
            loss.repair(scene)
            repaired = True
        if detected is None and scene.has_failed():
            detected = now
        if gone is None and not any(_is_trial(p, start["trial_id"]) for p in scene.victim.processes()):
            gone = now
        if done is None and scene.driver.poll() is not None:
            done = now
        time.sleep(0.1)
    if done is None:
        for process in inner(scene.driver):
            process.kill()
    said, complained = scene.driver.communicate()
    told = Told(loss.name, scene.driver.returncode, detected, gone, done, 0, 0, False, 0, said=f"{said}{complained}")
    if done is None:
        told.faults.append(f"the driver had not ended after {_RUN_S:g} s")
    return told


def _is_trial(process: psutil.Process, trial_id: str) -> bool:
    try:
        return process.environ().get("SPECSWEEP_TRIAL_ID") == trial_id and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _resume(scene: Scene, told: Told) -> None:
    """Complete it, and see what is wrong."""
    for other in scene.others:
        other.communicate()
    left = _within(_LEFT_S, lambda: not scene.rig.marked())
    if left is None:
        told.faults += [f"left: {line}" for line in scene.rig.marked()]
    if told.exit_code != 0:
        told.resumed = True
        driver = scene.run("--resume", str(scene.root))
        said, complained = driver.communicate(timeout=_RUN_S)
        told.said += f"\n--- resumed\n{said}{complained}"
        if driver.returncode:
            told.faults.append(f"the resumed run ended with {driver.returncode}")
        if _within(_LEFT_S, lambda: not scene.rig.marked()) is None:
            told.faults += [f"left after --resume: {line}" for line in scene.rig.marked()]
    told.starts = len(scene.events("trial_started"))
    told.faults += faults_of(scene)
    aside = scene.root / "partial"
    told.partial_rows = ds.dataset(aside).count_rows() if aside.exists() and list(aside.iterdir()) else 0


@contextlib.contextmanager
def _started(*, untuned: bool) -> Iterator[HostRig]:
    # Where the host that is hit keeps logs, where its load is spooled, and where runs are kept whose disk gets full.
    disks = {scratch(i): 16 for i in (0, 2, 3)} | {SMALL: 4}
    rig = HostRig([0, 1, 1, 0], ray_env={} if untuned else None, small_disks=disks)
    try:
        rig.start()
        yield rig
    finally:
        rig.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--untuned", action="store_true", help="Ray's own times until a host counts as lost")
    parser.add_argument("--keep", type=Path, help="what each run said goes there")
    wanted = parser.parse_args()
    if why := why_impossible():
        sys.exit(why)
    chosen = [loss for loss in LOSSES if not wanted.only or loss.name in wanted.only]
    rng = random.Random(wanted.seed)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    bad = 0
    with _started(untuned=wanted.untuned) as rig:
        scenario = rig.folder / "losses.yaml"
        scenario.write_text(SCENARIO, encoding="utf-8")
        for loss in chosen:
            told = suffer(rig, loss, scenario, rng)
            bad += bool(told.faults)
            sys.stdout.write(f"{row(told)}\n")
            sys.stdout.flush()
            if wanted.keep is not None:
                wanted.keep.mkdir(parents=True, exist_ok=True)
                (wanted.keep / f"{loss.slug}.txt").write_text(told.said, encoding="utf-8")
                shutil.copytree(rig.folder / loss.runs / loss.slug, wanted.keep / loss.slug, dirs_exist_ok=True)
            for host in rig.hosts:
                rig.revive(host)
    sys.exit(1 if bad else 0)


def row(told: Told) -> str:
    """A line of the table."""

    def s(value: float | None) -> str:
        return "-" if value is None else f"{value:.1f} s"

    return (
        f"| {told.name} | {s(told.detected_s)} | {s(told.gone_s)} | {s(told.done_s)} | {told.exit_code} | "
        f"{told.points_before} | {told.starts} | {told.partial_rows} | {'yes' if told.resumed else 'no'} | "
        f"{'; '.join(told.faults) or '-'} |"
    )


if __name__ == "__main__":
    main()

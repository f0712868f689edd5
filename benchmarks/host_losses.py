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
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow.dataset as ds

from benchmarks.host_rig import HostRig, RigHost, inner, send, why_impossible
from benchmarks.kill_rig import title
from orchestrator.journal import read_events

SCENARIO = """\
name: losses
model: {path: example/small-model, bundled_draft: true}
engine:
  kind: emulator
  start_speedup: 50
  settings: {speculative_algorithm: NEXTN, max_running_requests: 16}
sweep:
  axes: {speculative_num_steps: [0, 1, 2, 3]}
slots: {gpus: 1, labels: {role: gpu}}
workloads:
  - {name: chat, input_tokens: 32, output_tokens: 32, concurrency: [1, 4]}
measure: {warmup_s: 0.2, duration_s: 3}
objectives:
  - {name: fast, maximize: output_throughput_tok_s, at: {concurrency: 1}}
"""
_POINTS = 8
SMALL = "small"
_BEGIN_S = 90.0
_RUN_S = 300.0
_LEFT_S = 60.0


@dataclass
class Loss:
    """What is done to the run. `after_s`: how long after it `repair` is done, None if not before the run has ended."""

    name: str
    act: Callable[[Scene], None]
    repair: Callable[[Scene], None] | None = None
    after_s: float | None = None
    runs: str = "runs"  # the folder of its run directory

    @property
    def slug(self) -> str:
        return self.name.replace(" ", "-")


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


class Scene:
    """One run on the rig, and the host that is hit."""

    def __init__(self, rig: HostRig, victim: RigHost, scenario: Path, root: Path) -> None:
        self.rig, self.victim, self.root = rig, victim, root
        self._scenario = scenario
        self.others: list[subprocess.Popen[str]] = []
        self.driver = self.run()

    def run(self, *resume: str) -> subprocess.Popen[str]:
        words = resume or (str(self._scenario), "--run-dir", str(self.root))
        return self.rig.specsweep("run", *words, "--address", self.rig.address)

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [e for e in read_events(self.root / "journal.jsonl") if e["event"] == kind]

    def trial_on_victim(self) -> dict[str, Any] | None:
        """The start on the victim whose server is ready and that has not ended."""
        ended = {(e["trial_id"], e["attempt"]) for e in self.events("trial_ended")}
        ready = {e["trial_id"] for e in self.events("server_ready")}
        for start in self.events("trial_started"):
            is_up = (start["trial_id"], start["attempt"]) not in ended and start["trial_id"] in ready
            if is_up and start["place"]["host"] == self.victim.name:
                return start
        return None

    def has_ended(self, start: dict[str, Any]) -> bool:
        key = (start["trial_id"], start["attempt"])
        return any((e["trial_id"], e["attempt"]) == key for e in self.events("trial_ended"))

    def slot_actor(self) -> psutil.Process:
        return self.victim.actors("SlotActor")[0]

    def load_actor(self) -> psutil.Process:
        """The one that loads the victim's server."""
        found = [p for host in self.rig.hosts for p in host.actors("LoadHost")]
        return next(p for p in found if self.victim.address in _peers(p))


def _peers(process: psutil.Process) -> set[str]:
    with contextlib.suppress(psutil.Error):
        return {c.raddr.ip for c in process.net_connections("tcp") if c.raddr and c.status == "ESTABLISHED"}
    return set()


def faults_of(scene: Scene) -> list[str]:
    """What a finished run lacks or has twice."""
    table = ds.dataset(scene.root / "dataset/requests").to_table(columns=["point_id", "warmup", "request_index"])
    rows = table.to_pylist()
    keys = {(r["point_id"], r["warmup"], r["request_index"]) for r in rows}
    points = {r["point_id"] for r in rows}
    done = [e["point_id"] for e in scene.events("point_done")]
    found = []
    if len(points) != _POINTS:
        found.append(f"{len(points)} of {_POINTS} points")
    if len(keys) != len(rows):
        found.append(f"{len(rows) - len(keys)} requests twice")
    if sorted(done) != sorted(points):
        found.append("the journal and the dataset differ")
    return found


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
        if detected is None and scene.has_ended(start):
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


def _gcs(rig: HostRig) -> list[psutil.Process]:
    return [p for p in rig.hosts[0].processes() if title(p).split(" ")[0].endswith("/gcs_server")]


def _kill_gcs(scene: Scene) -> None:
    for process in _gcs(scene.rig):
        process.kill()


def _send_to(which: Callable[[Scene], Sequence[psutil.Process]], number: signal.Signals) -> Callable[[Scene], None]:
    def act(scene: Scene) -> None:
        for process in which(scene):
            process.send_signal(number)

    return act


def _actor(scene: Scene) -> list[psutil.Process]:
    return [scene.slot_actor()]


def _driver(scene: Scene) -> list[psutil.Process]:
    return inner(scene.driver)


def _raylet(scene: Scene) -> list[psutil.Process]:
    return scene.victim.raylets()


def _fill(folder: str) -> Callable[[Scene], None]:
    """Fill one of the small disks to the last byte."""

    def act(scene: Scene) -> None:
        with contextlib.suppress(OSError), (scene.rig.folder / folder / "ballast").open("wb", buffering=0) as ballast:
            while True:
                ballast.write(bytes(4096))

    return act


def _free(folder: str) -> Callable[[Scene], None]:
    return lambda scene: (scene.rig.folder / folder / "ballast").unlink(missing_ok=True)


def _fill_store(scene: Scene) -> None:
    """Somebody else fills the object stores of the hosts that send load, for 15 s."""
    words = (
        "import ray, time; ray.init(log_to_driver=False, logging_level='ERROR'); held = []\n"
        "@ray.remote(num_cpus=0)\nclass Hog:\n"
        "    def hold(self):\n        import numpy\n"
        "        self.held = [ray.put(numpy.zeros(1 << 20, dtype='u1')) for _ in range(95)]\n"
        "hogs = [Hog.options(label_selector={'host': h}).remote() for h in ('h0', 'h3')]\n"
        "ray.get([h.hold.remote() for h in hogs], timeout=30); time.sleep(15)"
    )
    scene.others.append(scene.rig.popen(scene.rig.hosts[0], sys.executable, "-c", words))


def _fill_both(scene: Scene) -> None:
    for number in (0, 3):
        _fill(_scratch(number))(scene)


def _free_both(scene: Scene) -> None:
    for number in (0, 3):
        _free(_scratch(number))(scene)


def _scratch(number: int) -> str:
    return f"h{number}/tmp/specsweep-{os.getuid()}"


LOSSES = (
    Loss("none", lambda _: None),
    Loss("driver -9", lambda s: send(s.driver, signal.SIGKILL)),
    Loss("slot actor -9", lambda s: s.slot_actor().kill()),
    Loss("load actor -9", lambda s: s.load_actor().kill()),
    Loss("raylet -9", lambda s: s.rig.kill_raylet(s.victim)),
    Loss("host crash", lambda s: s.rig.crash(s.victim)),
    Loss("power loss", lambda s: s.rig.power_off(s.victim)),
    Loss("power loss of the load host", lambda s: s.rig.power_off(s.rig.hosts[3])),
    Loss("partition 20 s", lambda s: s.rig.partition(s.victim), lambda s: s.rig.heal(s.victim), 20.0),
    Loss("partition 150 s", lambda s: s.rig.partition(s.victim), lambda s: s.rig.heal(s.victim), 150.0),
    Loss("partition 4 s", lambda s: s.rig.partition(s.victim), lambda s: s.rig.heal(s.victim), 4.0),
    Loss("slot actor stopped 10 s", _send_to(_actor, signal.SIGSTOP), _send_to(_actor, signal.SIGCONT), 10.0),
    Loss("raylet stopped 4 s", _send_to(_raylet, signal.SIGSTOP), _send_to(_raylet, signal.SIGCONT), 4.0),
    Loss("raylet stopped 20 s", _send_to(_raylet, signal.SIGSTOP), _send_to(_raylet, signal.SIGCONT), 20.0),
    Loss("driver stopped 20 s", _send_to(_driver, signal.SIGSTOP), _send_to(_driver, signal.SIGCONT), 20.0),
    Loss("disk of the GPU host full", _fill(_scratch(2)), _free(_scratch(2))),
    Loss("disk of the load hosts full", _fill_both, _free_both),
    Loss("disk of the driver full", _fill(SMALL), _free(SMALL), runs=SMALL),
    Loss("object store full", _fill_store),
    Loss("GCS -9", _kill_gcs, lambda s: s.rig.restart_ray()),
)  # fmt: skip


@contextlib.contextmanager
def _started(*, untuned: bool) -> Iterator[HostRig]:
    # Where the host that is hit keeps logs, where its load is spooled, and where runs are kept whose disk gets full.
    disks = {f"h{i}/tmp/specsweep-{os.getuid()}": 16 for i in (0, 2, 3)} | {SMALL: 4}
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

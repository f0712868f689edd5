"""What can be lost of a run and its cluster, each with what is done to lose it and to repair it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psutil

from benchmarks.host_rig import HostRig, inner, send
from benchmarks.kill_rig import title
from benchmarks.loss_scene import Scene

SMALL = "small"  # a folder of runs whose disk is full soon


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
    """With the process that waits for it, which stops when it does."""
    return [*inner(scene.driver), psutil.Process(scene.driver.pid)]


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
    """Somebody else fills the object stores (100 MiB) of the hosts that send load, for 15 s, with what cannot leave."""
    words = (
        "import ray, time; ray.init(log_to_driver=False, logging_level='ERROR'); held = []\n"
        "@ray.remote(num_cpus=0)\nclass Hog:\n"
        "    def hold(self):\n        import numpy\n"
        "        refs = (ray.put(numpy.zeros(1 << 20, dtype='u1')) for _ in range(120))\n"
        "        self.held = [(ref, ray.get(ref)) for ref in refs]  # what is in use cannot be spilled\n"
        "hogs = [Hog.options(label_selector={'host': h}).remote() for h in ('h0', 'h3')]\n"
        "ray.get([h.hold.remote() for h in hogs], timeout=30); time.sleep(15)"
    )
    scene.others.append(scene.rig.popen(scene.rig.hosts[0], sys.executable, "-c", words))


def _fill_both(scene: Scene) -> None:
    for number in (0, 3):
        _fill(scratch(number))(scene)


def _free_both(scene: Scene) -> None:
    for number in (0, 3):
        _free(scratch(number))(scene)


def scratch(number: int) -> str:
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
    Loss("disk of the GPU host full", _fill(scratch(2)), _free(scratch(2))),
    Loss("disk of the load hosts full", _fill_both, _free_both),
    Loss("disk of the driver full", _fill(SMALL), _free(SMALL), runs=SMALL),
    Loss("object store full", _fill_store),
    Loss("GCS -9", _kill_gcs, lambda s: s.rig.restart_ray()),
)  # fmt: skip

"""A Ray cluster of several hosts on one Linux machine, each with its own network, processes, /dev/shm and folder.

A host is a set of namespaces with an address of its own on a bridge that lives in a namespace too: nothing of it is in
the machine's own network, and there is no way out. Killing its first process is a power cut. Needs root and iproute2.
Two rigs at a time do not meet, though their hosts have the same addresses.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from actors.gpus.gpu_ledger import LEDGER_VARIABLE, GpuLedger
from benchmarks.kill_rig import PATIENT_RAY, RUN_MARK, environment, title
from benchmarks.rig_host import RigHost
from benchmarks.rig_network import RigNetwork
from orchestrator.clusters.raylet_settings import ACCESS, DETECTION, ISOLATION, PRIORITY

ROOT = Path(__file__).resolve().parent.parent
_GCS_PORT, _JOBS_PORT = 6379, 8265
_UP_S = 200.0
_TRIES = 5
_COUNT = itertools.count()
# A lost host is noticed after seconds instead of a minute, on its own side too.
QUICK_LOSS = {
    **DETECTION,
    **ISOLATION,
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_grpc_client_keepalive_timeout_ms": "3000",
    "RAY_grpc_keepalive_timeout_ms": "3000",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "15",
}
_QUIET = {**ACCESS, **PRIORITY, "RAY_DISABLE_IMPORT_WARNING": "1"}


class HostRig:
    """`gpus`: GPUs of each host, the head's (mostly 0) first. `start`, use, `end`.

    `ray_env` goes to every `ray start`. `with_jobs` starts the server for `ray job submit`, which takes longer to come
    up than all else. `folder` is seen by all hosts: run directories may be there. `small_disks`: MiB of folders below
    it that are file systems of their own, to be filled.
    """

    def __init__(
        self, gpus: Sequence[int], *, with_jobs: bool = False, ray_env: dict[str, str] | None = None, cpus: int = 8,
        gpu_gib: float = 96.0, small_disks: dict[str, int] | None = None,
    ) -> None:  # fmt: skip
        self._small_disks = small_disks or {}
        # Ray makes sockets below it, whose names may have 107 characters; and not where hosts have their own folder.
        self.folder = Path(tempfile.mkdtemp(prefix="specsweep-hosts-"))
        self._id = f"ss{os.getpid()}x{next(_COUNT)}"
        self._network = RigNetwork(self._id)
        self._with_jobs, self._cpus = with_jobs, cpus
        self._ray_env = {**_QUIET, **(QUICK_LOSS if ray_env is None else ray_env)}
        self.token = self.folder / "token"
        self.token.touch(mode=0o600)
        self.token.write_text(secrets.token_hex(32), encoding="ascii")
        self.hosts = [self._new_host(number, count, gpu_gib) for number, count in enumerate(gpus)]

    @property
    def address(self) -> str:
        return f"{self.hosts[0].address}:{_GCS_PORT}"

    @property
    def jobs(self) -> str:
        return f"http://{self.hosts[0].address}:{_JOBS_PORT}"

    def _new_host(self, number: int, gpus: int, gpu_gib: float) -> RigHost:
        folder = self.folder / f"h{number}"
        (folder / "tmp").mkdir(parents=True)
        host = RigHost(number, gpus, folder, f"{self._id}-h{number}")
        host.labels = {"host": host.name, "role": "gpu" if gpus else "head"}
        if gpus:
            host.ledger = GpuLedger.create(folder / "gpus", [gpu_gib] * gpus)
        return host

    def start(self) -> None:
        """All hosts; returns when every raylet has registered."""
        self.boot_all()
        self._start_all_ray()

    def boot_all(self) -> None:
        """All hosts and the network between them, without Ray."""
        for name, size_mib in self._small_disks.items():
            (self.folder / name).mkdir(parents=True, exist_ok=True)
            mount = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(self.folder / name)]
            subprocess.run(mount, check=True)
        self._network.make()
        for host in self.hosts:
            self.boot(host)

    def boot(self, host: RigHost) -> None:
        """Switch a host on; nothing runs there yet."""
        if host.is_on:
            return
        self._network.plug_in(host)
        self.heal(host)
        self._clear(host)
        words = (
            f"hostname {host.name}; mount -t tmpfs -o size=512m tmpfs /dev/shm; "
            "trap exit TERM; while :; do sleep 3600 & wait $!; done"
        )
        host.unshare = subprocess.Popen(
            ["ip", "netns", "exec", host.netns, "unshare", "--mount", "--pid", "--uts", "--ipc", "--fork",
             "--kill-child=KILL", "--mount-proc", "bash", "-c", words],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        host.pid1 = _first_child(host.unshare.pid)
        deadline = time.monotonic() + 60
        while self.run(host, "hostname").stdout.strip() != host.name:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{host.name} did not boot")
            time.sleep(0.02)

    def _clear(self, host: RigHost) -> None:
        """What a power cut leaves on a disk stays, but for the sockets and emulated GPU memory of what ran."""
        shutil.rmtree(host.folder / "tmp" / "ray", ignore_errors=True)
        if host.ledger is not None and host.starts:
            sizes = [gpu.total_gib for gpu in host.ledger.gpus()]
            shutil.rmtree(host.ledger.folder)
            host.ledger = GpuLedger.create(host.ledger.folder, sizes)

    def environment(self, host: RigHost) -> dict[str, str]:
        """What a user of a host has in the environment."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "SPECSWEEP_"))}
        own = {
            **self._ray_env,
            "RAY_AUTH_TOKEN_PATH": str(self.token),
            "RAY_ADDRESS": self.address,
            "TMPDIR": str(host.folder / "tmp"),
            "HOME": str(host.folder),
        }
        if host.ledger is not None:
            own[LEDGER_VARIABLE] = str(host.ledger.folder)
        return {**kept, **own}

    def popen(
        self, host: RigHost, *argv: str, env: dict[str, str] | None = None, cwd: Path = ROOT
    ) -> subprocess.Popen[str]:
        """A program on a host, output captured. It is a child of the process returned, which only waits for it."""
        assert host.pid1 is not None
        return subprocess.Popen(
            ["nsenter", "-t", str(host.pid1.pid), "-n", "-m", "-p", "-u", "-i", "--", "env", "-C", str(cwd), *argv],
            env={**self.environment(host), **(env or {})}, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, host: RigHost, *argv: str, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
        """A program on a host, to its end."""
        started = self.popen(host, *argv)
        try:
            said, complained = started.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            for process in inner(started):
                process.kill()
            raise
        return subprocess.CompletedProcess(argv, started.returncode, said, complained)

    def specsweep(self, *arguments: str, host: int = 0) -> subprocess.Popen[str]:
        """`python -m orchestrator ...` on a host."""
        return self.popen(self.hosts[host], sys.executable, "-m", "orchestrator", *arguments)

    def _start_all_ray(self) -> None:
        """The head's first, then the others' at the same time."""
        self.start_ray(self.hosts[0])
        starts = [(host, self._begin_ray(host)) for host in self.hosts[1:]]
        for host, started in starts:
            self._finish_ray(host, started)

    def start_ray(self, host: RigHost) -> None:
        self._finish_ray(host, self._begin_ray(host))

    def _begin_ray(self, host: RigHost) -> subprocess.Popen[str]:
        host.starts += 1
        head = host.number == 0
        own = [f"--address={self.address}"]
        if head:
            own = [
                "--head", f"--port={_GCS_PORT}", f"--include-dashboard={str(self._with_jobs).lower()}",
                f"--dashboard-host={host.address}", f"--dashboard-port={_JOBS_PORT}",
            ]  # fmt: skip
        labels = ",".join(f"{k}={v}" for k, v in host.labels.items())
        return self.popen(
            host, sys.executable, "-c", PATIENT_RAY, "start", *own, f"--node-ip-address={host.address}",
            f"--num-gpus={host.gpus}", f"--num-cpus={self._cpus}", "--object-store-memory=104857600",
            f"--temp-dir={host.folder}/tmp/ray", f"--labels={labels}", "--disable-usage-stats",
        )  # fmt: skip

    def _finish_ray(self, host: RigHost, started: subprocess.Popen[str]) -> None:
        """A raylet gives its agent 15 s, whatever it is told, and ends; where that was too short it is tried again."""
        for left in reversed(range(_TRIES)):
            try:
                said, complained = started.communicate(timeout=_UP_S)
            except subprocess.TimeoutExpired:
                for process in inner(started):
                    process.kill()
                said, complained = started.communicate()
            if started.returncode == 0:
                return
            if not left:
                raise RuntimeError(f"no Ray on {host.name}: {said[-1500:]}{complained[-1500:]}")
            self._end_ray(host)
            started = self._begin_ray(host)

    def _end_ray(self, host: RigHost) -> None:
        """kill -9 of all that is Ray's on a host; what the guards still end is left to them."""
        for process in host.processes():
            if process != host.pid1 and not environment(process).get(RUN_MARK):
                with contextlib.suppress(psutil.Error):
                    if "/ray/" in title(process) or title(process).startswith("ray::"):
                        process.kill()

    def partition(self, host: RigHost) -> None:
        """Pull its network cable; what runs there goes on."""
        self._network.cable(host, plugged=False)

    def heal(self, host: RigHost) -> None:
        """Plug the cable in again."""
        self._network.cable(host, plugged=True)

    def power_off(self, host: RigHost) -> None:
        """Power loss: nobody is told, no connection is closed."""
        self.partition(host)
        self.crash(host)

    def crash(self, host: RigHost) -> None:
        """The host ends at once, and its connections are seen to close."""
        for process in (host.pid1, host.unshare and psutil.Process(host.unshare.pid)):
            with contextlib.suppress(psutil.Error):
                if process is not None:
                    process.kill()
        if host.unshare is not None:
            host.unshare.wait()
        host.pid1 = host.unshare = None

    def kill_raylet(self, host: RigHost) -> None:
        """kill -9 of the raylet alone; the host's other processes live on."""
        for raylet in host.raylets():
            raylet.kill()

    def revive(self, host: RigHost) -> None:
        """Boot a host that is off, and start Ray where no raylet lives, as an init system would."""
        self.boot(host)
        self.heal(host)
        if not host.raylets():
            self._end_ray(host)  # agents of the raylet that died have its ports
            self.start_ray(host)

    def restart_ray(self) -> None:
        """A new cluster on the same hosts, after the head's own processes were lost."""
        for host in self.hosts:
            self._end_ray(host)
            self.boot(host)
            self.heal(host)
        self._start_all_ray()

    def marked(self, run_id: str = "") -> list[str]:
        """Processes of a run (of any if empty) on all hosts."""
        return [f"{host.name}: {told}" for host in self.hosts for told in host.marked(run_id)]

    def end(self) -> None:
        """Switch everything off and remove it."""
        for host in self.hosts:
            self.crash(host)
        for disk in self._small_disks:
            subprocess.run(["umount", "-l", str(self.folder / disk)], capture_output=True, check=False)
        self._network.remove(self.hosts)
        shutil.rmtree(self.folder, ignore_errors=True)


def inner(started: subprocess.Popen[str]) -> list[psutil.Process]:
    """What a program on a host really is: the children of the process that entered the host."""
    try:
        return psutil.Process(started.pid).children()
    except psutil.Error:
        return []


def send(started: subprocess.Popen[str], number: signal.Signals) -> None:
    """A signal to a program on a host."""
    for process in inner(started):
        process.send_signal(number)


def _first_child(pid: int) -> psutil.Process:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(pid).children(recursive=True):
                if title(child).startswith("bash -c hostname"):
                    return child
        time.sleep(0.02)
    raise RuntimeError("a host has no first process")

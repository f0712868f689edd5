"""How the driver reaches Ray: join the cluster that runs, or embed one for this run; ClusterRefusal otherwise."""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.host.own_folder import mark_owner
from actors.host.run_lease import dead_ray_folders
from orchestrator.clusters.cluster_token import cluster_token
from orchestrator.clusters.no_cluster import is_slow_start, no_cluster
from orchestrator.clusters.raylet_settings import PRIORITY
from orchestrator.errors import BadInput, ClusterRefusal
from orchestrator.job_place import shipped_with_job
from orchestrator.slots.cluster import Cluster
from orchestrator.slots.ray_patience import end_start, patient_start
from orchestrator.stop_signals import STOP_SIGNALS, EarlyInterrupt

PROBE_S = 10.0
# Not begun anew after that: whoever waits wants to know.
_ANEW_S = 180.0


@dataclass(frozen=True)
class Connection:
    """How to reach the cluster: `local` embeds one, `auto` joins the one that runs here, else HOST:PORT."""

    address: str
    emulated_gpus: int = 0
    cpus_wanted: float = 0.0


def connect(connection: Connection, run_id: str) -> Cluster:
    """Join or embed a cluster; ClusterRefusal if there is none at the address.

    KeyboardInterrupt for who is told to stop meanwhile, where Ray can be left: between its waits, or once it is whole.
    In the middle of its start it has threads that nothing ends, and they end us by SIGSEGV when we leave.
    """
    early = EarlyInterrupt()
    with early.listening(), early.held():
        try:
            cluster = _connected(connection, run_id, early.check)
        except ClusterRefusal:
            early.check()
            raise
        finally:
            atexit.register(_be_deaf)  # called before what Ray and we have registered by now
        try:
            early.check()
        except KeyboardInterrupt:
            cluster.leave()
            raise
    return cluster


def _connected(connection: Connection, run_id: str, look: Callable[[], object]) -> Cluster:
    quiet = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_BACKEND_LOG_LEVEL": "error",
        # Ray would run every worker, and so every server, at nice 15 and first in line for the OOM killer.
        **PRIORITY,
        # A thread that still asks when we have left would start a cluster of its own, silently.
        "RAY_ENABLE_AUTO_CONNECT": "0",
    }
    for name, value in quiet.items():
        os.environ.setdefault(name, value)
    _probe(connection.address)
    if connection.address == "local":
        folder = _own_folder()
        _own_token(folder)
        os.environ.pop("RAY_ADDRESS", None)
    else:
        use_token_at_hand()
    import ray  # reads RAY_AUTH_MODE now, not at init

    options: dict[str, Any] = {
        "namespace": run_id,
        "log_to_driver": False,
        "logging_level": "ERROR",
        "configure_logging": False,
    }
    if connection.address == "local":
        options |= {
            "address": "local",
            "include_dashboard": False,
            "num_cpus": max(os.cpu_count() or 1, int(connection.cpus_wanted + 1)),
            "object_store_memory": 256 * 2**20,
            "_temp_dir": str(folder),
        }
        if connection.emulated_gpus:
            options["num_gpus"] = connection.emulated_gpus
    else:
        options["address"] = connection.address
        if not shipped_with_job():
            options["runtime_env"] = {"py_modules": [str(p) for p in _own_packages()]}
    _silence_events()
    with _stderr_kept() as said:
        try:
            look()
            _begin(ray, options, look)
        except Exception as error:  # Ray has no error of its own for this, and raises bare ones too
            told = f"{said()}\n{error}"
            raise ClusterRefusal(no_cluster(connection.address, told)) from error
    return Cluster(run_id, connection.address)


def _begin(ray: Any, options: dict[str, Any], look: Callable[[], object]) -> None:
    """The processes of a cluster of its own may take their time. A raylet gives its agent 15 s, fixed, and ends: what
    was loaded from the disk by then is there when it is started again.
    """
    if options["address"] != "local":
        ray.init(**options)
        return
    from tenacity import Retrying, retry_if_exception, stop_after_attempt, stop_after_delay

    slow = retry_if_exception(lambda error: is_slow_start(str(error)))
    for attempt in Retrying(stop=stop_after_attempt(3) | stop_after_delay(_ANEW_S), retry=slow, reraise=True):
        with attempt, patient_start(look), _no_own_sigterm():
            try:
                ray.init(**options)
            except BaseException:
                end_start(options["_temp_dir"])
                raise


@contextlib.contextmanager
def _no_own_sigterm() -> Iterator[None]:
    """Ray's handler of SIGTERM, which it sets when its processes start, would raise in the middle of that."""
    from ray._private import utils

    rays = utils.set_sigterm_handler
    utils.set_sigterm_handler = lambda _: None
    try:
        yield
    finally:
        utils.set_sigterm_handler = rays


def _be_deaf() -> None:
    """At our end, which takes a second: what is left is removed, however often somebody asks for it."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _silence_events() -> None:
    """Ray prints its own account of lost hosts and workers, with traces, to the driver's terminal, whatever the logging
    settings; the run tells what matters. There is no public switch, and without this one nothing but the look is lost.
    """
    from ray._private import worker

    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *_, **__: None


def resolve_address(address: str | None) -> str:
    """`--address`, else the cluster that RAY_ADDRESS names or that runs here, else an embedded one."""
    if address is not None:
        return address
    if os.environ.get("RAY_ADDRESS"):
        return "auto"
    # Where `ray start` notes it, by Ray's own rule.
    folder = Path(os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp") / "ray"
    return "auto" if (folder / "ray_current_cluster").exists() else "local"


def _probe(address: str) -> None:
    """Ray retries for ever where nothing listens; ask first. ClusterRefusal if nothing answers at HOST:PORT."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        if address not in {"local", "auto"}:
            raise BadInput(f"--address {address}: write auto, local or HOST:PORT")
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PROBE_S).close()
    except OSError as error:
        raise ClusterRefusal(no_cluster(address, f"{type(error).__name__}: {error}")) from None


def _own_folder() -> Path:
    """Logs, sockets and token of an embedded cluster; removed at our end, where Ray would leave them for good."""
    for left in dead_ray_folders():
        shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"specsweep-ray-{os.getpid()}-"))
    mark_owner(folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _own_token(folder: Path) -> None:
    """An embedded cluster gets a token of its own; Ray would otherwise write one into the user's home."""
    if "RAY_AUTH_MODE" in os.environ:
        return
    file = folder / "token"
    file.touch(mode=0o600)
    file.write_text(secrets.token_hex(32), encoding="ascii")
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(file))


def use_token_at_hand() -> None:
    """A driver that has a token uses it. Ray does so by itself only for `auto`, not for an address that is named."""
    if "RAY_AUTH_MODE" not in os.environ and cluster_token():
        os.environ["RAY_AUTH_MODE"] = "token"


def _own_packages() -> list[Path]:
    root = Path(__file__).resolve().parent.parent.parent
    return [root / "orchestrator", root / "actors"]


@contextlib.contextmanager
def _stderr_kept() -> Iterator[Any]:
    """Ray's C++ parts write to fd 2 whatever the logging settings; keep it, to be told only on failure."""
    saved = os.dup(2)
    with tempfile.TemporaryFile() as sink:

        def said() -> str:
            sink.seek(0)
            return sink.read().decode(errors="replace")

        os.dup2(sink.fileno(), 2)
        try:
            yield said
        finally:
            os.dup2(saved, 2)
            os.close(saved)


def head_store() -> Any:
    """Ray's key-value store on the head of the cluster that RAY_ADDRESS names; a job reads it before `ray.init`."""
    from ray._raylet import GcsClient  # type: ignore[attr-defined]

    address = os.environ.get("RAY_ADDRESS", "")
    if not address:
        raise BadInput("--sealed is for jobs that `specsweep submit` starts")
    return GcsClient(address=address)

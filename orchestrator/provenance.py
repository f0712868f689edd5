"""What made the numbers: program versions, machine, command. Written into the manifest once per start of a run."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import socket
import sys
from typing import Any

from orchestrator import __version__
from orchestrator.job_place import job_id

PACKAGES = ("ray", "pyarrow", "aiohttp", "numpy", "sglang", "torch")


def package_versions() -> dict[str, str | None]:
    """Installed versions; None for what is not there."""
    return {"specsweep": __version__, **{name: package_version(name) for name in PACKAGES}}


def package_version(name: str) -> str | None:
    """The version that is installed here, if it is."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def utc_now() -> str:
    """Wall-clock time for people; durations use monotonic clocks."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


def driver_facts() -> dict[str, Any]:
    """The driver's machine and program."""
    return {
        "started_at": utc_now(),
        "hostname": socket.gethostname(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "versions": package_versions(),
        "ray_job": job_id(),
        "program": os.path.basename(sys.argv[0]),  # noqa: PTH119 - arguments may hold secrets, the name does not
    }

"""`hosts.json` of a run: what the hosts that it used said of themselves. Environment that no server tells."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from orchestrator.host_report import HostReport
from orchestrator.paths import RunPaths, write_whole


def keep_hosts(root: Path, reports: Mapping[str, HostReport]) -> None:
    """Add these hosts; one that was kept before is as it is now."""
    known = read_hosts(root)
    found = {**known, **{name: _facts(report) for name, report in reports.items()}}
    if found != known:
        write_whole(RunPaths(root).hosts, json.dumps(found, indent=1).encode() + b"\n")


def read_hosts(root: Path) -> dict[str, dict[str, str]]:
    """By name: `host_class`, `cpu`, `kernel`, and where there are GPUs `gpu` and `driver`. Empty for earlier runs."""
    with suppress(OSError, ValueError):
        told: Any = json.loads(RunPaths(root).hosts.read_bytes())
        if isinstance(told, dict):
            return {name: _texts(facts) for name, facts in told.items() if isinstance(facts, dict)}
    return {}


def _texts(facts: Mapping[str, Any]) -> dict[str, str]:
    return {name: fact for name, fact in facts.items() if isinstance(fact, str)}


def _facts(report: HostReport) -> dict[str, str]:
    gpus = sorted({gpu.name for gpu in report.gpus or ()})
    facts = {
        "host_class": report.host_class,
        "gpu": " + ".join(gpus),
        "driver": report.driver_version or "",
        "cpu": report.cpu_model,
        "kernel": report.kernel,
    }
    return {name: value for name, value in facts.items() if value}

"""A night in a process of its own, which gets SIGTERM while it leaves Ray. The argument is its folder."""

from __future__ import annotations

import io
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from rich.console import Console

from orchestrator.nightly.nightly_command import NightRequest, nightly
from orchestrator.nightly.nightly_output import NightFiles
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.scenarios.scenario import Scenario
from orchestrator.sweeps import run_sweep
from orchestrator.sweeps.sweep import SweepResult
from tests.orchestrator.night_samples import build_slot, nightly_scenario, sweep_night


def _shut_down() -> None:
    """What Ray does to SIGTERM within `ray.shutdown` (Cluster.leave), and the signal."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


def _connect(*_: object) -> SimpleNamespace:
    return SimpleNamespace(head_address="127.0.0.1:1", leave=_shut_down)


def _sweep(scenario: Scenario, directory: RunDirectory, _: object, wanted: Any, *__: object) -> SweepResult:
    return sweep_night(directory, scenario, [build_slot()], conductor=wanted.conductor)


def main(folder: Path) -> int:
    """Does not come to its end."""
    file = folder / "scenario.yaml"
    file.write_text(yaml.safe_dump(nightly_scenario().model_dump(mode="json", exclude_defaults=True)))
    wanted = NightRequest(file, str(folder / "history"), NightFiles(), address="local", run_dir=folder / "run")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run_sweep, "connect", _connect)
        patched.setattr(run_sweep, "_on_cluster", _sweep)
        return nightly(wanted, Console(file=io.StringIO()))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

"""What a run does otherwise inside a Ray job: where its directory goes, and what the job is called."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from orchestrator.errors import BadInput
from orchestrator.terminal import JOB_MARK

# Below the folder where Ray unpacks a job's working directory, on every host; it goes with the job.
_UNPACKED = "runtime_resources"
HOME_RUNS = "specsweep-runs"


def in_job(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this process was started by `ray job submit`."""
    return JOB_MARK in environ


def shipped_with_job(package: Path = Path(__file__)) -> bool:
    """Whether our packages are in the job's working directory, and so on every host; ours is a file of one of them."""
    return _UNPACKED in package.absolute().parts


def job_id(environ: Mapping[str, str] = os.environ) -> str | None:
    """The submission id of the job that this process is, None outside of one."""
    try:
        metadata = json.loads(environ.get(JOB_MARK, "")).get("metadata") or {}
    except (ValueError, AttributeError):
        return None
    told = metadata.get("job_submission_id")
    return str(told) if told else None


def runs_parent(environ: Mapping[str, str] = os.environ) -> Path:
    """Where runs go that were given no directory: `runs/`, and for a job its user's home on the head."""
    return Path.home() / HOME_RUNS if in_job(environ) else Path("runs")


def lasting(path: Path, option: str) -> Path:
    """A path given by the user, `~` resolved. BadInput for one that Ray removes with the job's working directory."""
    path = path.expanduser()
    if in_job() and _UNPACKED in path.absolute().parts:
        raise BadInput(
            f"{option} {path}: is in the working directory of this job, which Ray removes; give an absolute path on "
            f"the head, or leave it out (~/{HOME_RUNS}/NAME-TIME)"
        )
    return path

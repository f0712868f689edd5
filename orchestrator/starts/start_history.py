"""Server starts of earlier runs, as far as they tell what the next start will do: phases, seconds, GiB, outcomes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from orchestrator.errors import BadInput
from orchestrator.outcome import Phase, PhaseFact
from orchestrator.paths import RunPaths
from orchestrator.run_files import dataset
from orchestrator.run_files.run_manifest import read_manifest

# The newest runs are the likeliest to be of today's hosts; more of them would only cost time to read.
MOST_RUNS = 50
MOST_STARTS = 400


@dataclass(frozen=True, slots=True)
class PastStart:
    """One start of a server of the model: what was asked, what the server resolved, how long it took, how it ended.

    `label` and `evidence` are None unless it died. Phases carry seconds since launch and GiB free at their end.
    """

    host: str
    gpu_count: int
    version: str | None
    settings: dict[str, Any]
    phases: tuple[PhaseFact, ...]
    outcome: str
    label: str | None = None
    evidence: str | None = None
    resolved: dict[str, Any] = field(default_factory=dict)


def past_starts(
    parent: Path, *, model: str, engine: str, most_runs: int = MOST_RUNS, most_starts: int = MOST_STARTS
) -> tuple[PastStart, ...]:
    """Starts of this model and kind of engine in the run directories of a folder, those of the newest run first.

    What cannot be read is left out: an old run must not keep a new one from starting.
    """
    ages = {manifest.parent: age for manifest in parent.glob("*/manifest.json") if (age := _changed(manifest.parent))}
    roots = sorted(ages, key=lambda root: ages[root], reverse=True)
    found = (start for root in roots[:most_runs] for start in _starts_of(root, model, engine))
    return tuple(islice(found, most_starts))


def _changed(root: Path) -> float | None:
    """When a folder was changed last; None if it is gone by now."""
    try:
        return root.stat().st_mtime
    except OSError:
        return None


def _starts_of(root: Path, model: str, engine: str) -> Iterator[PastStart]:
    try:
        scenario = read_manifest(root)["scenario"]
        if scenario["model"]["path"] != model or scenario.get("engine", {}).get("kind") != engine:
            return
        rows = dataset.read_rows(RunPaths(root), "trials")
    except (BadInput, OSError, KeyError, TypeError, AttributeError):  # another program's folder, or half a manifest
        return
    for row in rows:
        with contextlib.suppress(KeyError, TypeError, ValueError):  # a row of another release
            yield past_start(row)


def past_start(row: dict[str, Any]) -> PastStart:
    """What a row of `trials` tells of its start."""
    phases = tuple(PhaseFact(**{**fact, "phase": Phase(fact["phase"])}) for fact in row["phases"] or ())
    return PastStart(
        host=row["host"],
        gpu_count=len(row["gpu_ids"] or ()),
        version=row["engine_version"],
        settings=json.loads(row["settings_json"]),
        phases=phases,
        outcome=row["outcome"],
        label=row["label"],
        evidence=row["evidence"],
        resolved=json.loads(row["resolved_json"] or "{}"),
    )

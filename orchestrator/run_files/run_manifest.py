"""`manifest.json` of a run directory: what was asked, by whom, on which classes of hosts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from orchestrator import SCHEMA_VERSION
from orchestrator.errors import BadInput
from orchestrator.paths import RunPaths, write_whole
from orchestrator.redaction import storable
from orchestrator.scenarios.scenario import Scenario

_KINDS: dict[str, type] = {"run_id": str, "scenario": dict, "starts": list}


def write_manifest(
    paths: RunPaths, run_id: str, scenario: Scenario, starts: list[dict[str, Any]], classes: Sequence[str] = ()
) -> dict[str, Any]:
    """Write the file anew, in one piece: a run that lost its classes on the way would be measured on others as if they
    were the same.
    """
    manifest: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "run_id": run_id,
        "engine": scenario.engine.kind,
        "seed": scenario.seed,
        "scenario": storable(scenario),
        "starts": starts,
        **({"host_classes": list(classes)} if classes else {}),
    }
    write_whole(paths.manifest, manifest_bytes(manifest))
    return manifest


def manifest_bytes(manifest: dict[str, Any]) -> bytes:
    """As the file has it."""
    return json.dumps(manifest, indent=1).encode() + b"\n"


def read_manifest(root: Path) -> dict[str, Any]:
    """The manifest of a run directory; BadInput if it is none, or of another schema."""
    file = RunPaths(root).manifest
    try:
        manifest = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise BadInput(f"{root}: is not a run directory (no {file.name}); runs are in runs/<name>-<time>/") from None
    except (ValueError, OSError) as error:
        raise BadInput(_damaged(file, str(error))) from None
    if not isinstance(manifest, dict):
        raise BadInput(_damaged(file, "is no manifest of a run"))
    if manifest.get("schema") != SCHEMA_VERSION:
        raise BadInput(
            f"{root}: has schema {manifest.get('schema')}, this specsweep reads {SCHEMA_VERSION}; read it with the "
            "release that wrote it"
        )
    for name, kind in _KINDS.items():
        if not isinstance(manifest.get(name), kind):
            raise BadInput(_damaged(file, f"`{name}` is missing, or of another kind"))
    loaded: dict[str, Any] = manifest
    return loaded


def stored_scenario(root: Path, manifest: Mapping[str, Any]) -> Scenario:
    """What the run was asked; BadInput where this release does not know that."""
    try:
        return Scenario.model_validate(manifest["scenario"])
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        key = ".".join(map(str, fault["loc"]))
        raise BadInput(
            f"{root}: its scenario is not one of this release ({key}: {fault['msg']}); read it with the release that "
            "wrote it"
        ) from None


def new_run_root(name: str, stamp: str, parent: Path = Path("runs")) -> Path:
    """`runs/<name>-<time>`, with a number behind it if that is taken."""
    root = parent / f"{name}-{stamp}"
    number = 2
    while root.exists():
        root = parent / f"{name}-{stamp}-{number}"
        number += 1
    return root


def differing_keys(given: Scenario, stored: Scenario) -> tuple[str, ...]:
    """In which a scenario is another one than a run was asked; secrets, which no run keeps, count for nothing."""
    shown = Scenario.model_validate(storable(given))
    return tuple(name for name in Scenario.model_fields if getattr(shown, name) != getattr(stored, name))


def _damaged(file: Path, why: str) -> str:
    return f"{file.parent}: its {file.name} cannot be read: {why}; put back a copy, or measure anew"

"""A scenario with secrets on its way to a job: put into the head's memory, taken from there once, never on a disk.

What a job is given otherwise is for everybody to see who may see the cluster: its entry point, metadata and environment
stand on the dashboard, its working directory lies on every host. The store is the one that Ray keeps packages in. Ray
drops the entry after ten minutes if nobody came for it.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any, Self

from actors.servers.launch import API_KEY_VARIABLE
from orchestrator.errors import BadInput
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_file import scenario_from_tree
from orchestrator.scenarios.yaml_tree import parse_yaml

PREFIX = "_ray_pkg_specsweep_sealed_"
# Of this machine's environment: what a run on it would have used.
CARRIED = (API_KEY_VARIABLE,)


@dataclass(frozen=True, slots=True)
class Sealed:
    """The text of a scenario file, and variables for the driver."""

    text: str
    environment: dict[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def with_environment(cls, text: str) -> Self:
        """A scenario and the variables that go with it from here."""
        return cls(text, {name: os.environ[name] for name in CARRIED if name in os.environ})

    def as_bytes(self) -> bytes:
        return json.dumps({"scenario": self.text, "environment": self.environment}).encode()


def open_sealed(name: str) -> Scenario:
    """Take the scenario that `submit` left under a name; the variables that came with it are set for this process."""
    data = _take(f"gcs://{name}".encode()) if name.startswith(PREFIX) else None
    if data is None:
        raise BadInput(
            f"--sealed {name}: nothing is kept under this name any more (it can be taken once, within ten minutes); "
            "submit the scenario again"
        )
    told = json.loads(data)
    os.environ.update(told["environment"])
    return scenario_from_tree(parse_yaml(told["scenario"].encode(), "scenario"))


def _take(key: bytes) -> bytes | None:
    from orchestrator.slots.ray_connection import head_store

    store: Any = head_store()
    data: bytes | None = store.internal_kv_get(key, None)
    if data is not None:
        store.internal_kv_del(key, False, None)
    return data

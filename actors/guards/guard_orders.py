"""What a guard is asked to do besides running the server. Plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.server_start import CONTAINER_END_S


@dataclass(frozen=True, slots=True)
class Container:
    """The container that a command runs: the words that call its runtime (`sudo docker`), and its name."""

    runtime: tuple[str, ...]
    name: str


@dataclass(frozen=True, slots=True)
class Step:
    """A command of the user, how it may be shown, and after how many seconds it is ended."""

    command: tuple[str, ...]
    shown: tuple[str, ...]
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a guard does besides the server.

    `before` and `after` run with `step_env` on top of the server's environment; `limits` are soft limits by name, -1
    for unlimited; `private_files` are deleted in the end.
    """

    container: Container | None = None
    before: tuple[Step, ...] = ()
    after: tuple[Step, ...] = ()
    step_env: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    private_files: tuple[Path, ...] = ()

    @property
    def begin_s(self) -> float:
        """The longest that a start may take before the server's own."""
        return sum(step.timeout_s for step in self.before)

    @property
    def end_s(self) -> float:
        """The longest that an orderly end may take besides the grace."""
        return sum(step.timeout_s for step in self.after) + (CONTAINER_END_S if self.container is not None else 0.0)

    def orders(self, env: Mapping[str, str]) -> dict[str, Any]:
        """As the guard reads it, for a server with this environment."""
        container = self.container
        return {
            "container": None if container is None else {"runtime": container.runtime, "name": container.name},
            "before": [_order(step) for step in self.before],
            "after": [_order(step) for step in self.after],
            "step_env": {**env, **self.step_env} if self.before or self.after else {},
            "limits": dict(self.limits),
            "private_files": [str(path) for path in self.private_files],
        }


def _order(step: Step) -> dict[str, Any]:
    return {"command": step.command, "shown": step.shown, "timeout_s": step.timeout_s}

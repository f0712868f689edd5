"""What contradicts itself in how servers are launched: container, limits, commands, paths by host. Pure."""

from __future__ import annotations

from actors.servers.container import command_fault, container_runtime
from orchestrator.scenarios.config_env import is_variable
from orchestrator.scenarios.scenario import Scenario
from orchestrator.sglang.options import did_you_mean

Fault = tuple[tuple[str | int, ...], str]

# Name -> least value with which a server can start at all, and whether the kernel knows no limit.
ULIMITS = {"nofile": (64, False), "nproc": (1, True), "memlock": (0, True), "stack": (65536, True), "core": (0, True)}
UNLIMITED = "unlimited"


def launch_fault(scenario: Scenario) -> Fault | None:
    """The first fault, as (path of keys, message), or None."""
    if scenario.engine.kind == "attach":
        return _attach_fault(scenario)
    return _container_fault(scenario) or _ulimit_fault(scenario) or _path_fault(scenario)


def _attach_fault(scenario: Scenario) -> Fault | None:
    for part, names in (
        ("engine", ("command", "ulimits", "before_start", "after_stop")),
        ("model", ("path_by_host", "draft_path_by_host")),
    ):
        for name in names:
            if getattr(getattr(scenario, part), name):
                return (part, name), "is for servers that Specsweep starts, and `attach` starts none"
    for i, config in enumerate(scenario.sweep.include):
        for name in config:
            if is_variable(name):
                return ("sweep", "include", i, name), "is for servers that Specsweep starts, and `attach` starts none"
    return None


def _container_fault(scenario: Scenario) -> Fault | None:
    engine = scenario.engine
    if fault := command_fault(engine.command):
        return ("engine", "command"), fault
    if engine.address_space_limit_gib is not None and container_runtime(engine.command):
        return (
            ("engine", "address_space_limit_gib"),
            "cannot be set for a container; give `--memory` in engine.command",
        )
    return None


def _ulimit_fault(scenario: Scenario) -> Fault | None:
    for name, limit in scenario.engine.ulimits.items():
        path = ("engine", "ulimits", name)
        if name not in ULIMITS:
            return path, f"is not a limit here{did_you_mean(name, list(ULIMITS))} Allowed: {', '.join(ULIMITS)}"
        least, endless = ULIMITS[name]
        if limit == UNLIMITED and endless:
            continue
        if isinstance(limit, str):
            return path, f"is {limit!r}; give a whole number" + (f" or `{UNLIMITED}`" if endless else "")
        if limit < least:
            return path, f"is {limit}; a server cannot start with less than {least}"
    return None


def _path_fault(scenario: Scenario) -> Fault | None:
    model = scenario.model
    if model.draft_path_by_host and model.draft_path is None:
        return ("model", "draft_path_by_host"), "needs model.draft_path, the name that configs know the draft by"
    for key in ("path_by_host", "draft_path_by_host"):
        for pattern, path in getattr(model, key).items():
            if not pattern or not path:
                return ("model", key, pattern), "is empty; write PATTERN: PATH"
    return None


def limits_of(ulimits: dict[str, int | str]) -> tuple[tuple[str, int], ...]:
    """The limits of a checked scenario as numbers, -1 for unlimited."""
    return tuple((name, -1 if isinstance(limit, str) else limit) for name, limit in ulimits.items())

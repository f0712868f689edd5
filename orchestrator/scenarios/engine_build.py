"""The two builds of a night: the scenario's engine with what each has otherwise. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from actors.servers.container_options import ContainerRefusal, RunCommand, parse_run
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_engine import Engine
from orchestrator.scenarios.scenario_nightly import Build

REFERENCE, CANDIDATE = "reference", "candidate"
BUILDS = (REFERENCE, CANDIDATE)


def build_of(scenario: Scenario, build: str) -> Build | None:
    """What the scenario says of a build; None for its own engine (an empty name)."""
    if not build or scenario.nightly is None:
        return None
    return scenario.nightly.reference if build == REFERENCE else scenario.nightly.candidate


def engine_of(scenario: Scenario, build: str) -> Engine:
    """The engine that serves the configs of a build."""
    told, engine = build_of(scenario, build), scenario.engine
    if told is None:
        return engine
    changed: dict[str, Any] = {
        "env": {**engine.env, **told.env},
        "settings": {**engine.settings, **told.settings},
        "extra_args": [*engine.extra_args, *told.extra_args],
        "faults": told.faults or engine.faults,
        "version": told.version or (None if told.image or told.command else engine.version),
    }
    command = list(told.command or engine.command)
    changed["command"] = with_image(command, told.image) or command if told.image else command
    return engine.model_copy(update=changed)


def of_build(scenario: Scenario, build: str) -> Scenario:
    """The scenario as if this build were its engine."""
    return scenario.model_copy(update={"engine": engine_of(scenario, build)}) if build else scenario


def with_image(command: Sequence[str], image: str) -> list[str] | None:
    """A container command with another image; None if it runs no container."""
    run = _container_run(command)
    if run is None:
        return None
    return [*run.start, *(word for option in run.options for word in option.words), image, *run.inner]


def image_of(command: Sequence[str]) -> str:
    """The image that a command runs a container of; empty if it runs none."""
    run = _container_run(command)
    return run.image if run is not None else ""


def _container_run(command: Sequence[str]) -> RunCommand | None:
    """None for what runs no container, and for what is refused, which the launch tells."""
    try:
        return parse_run(command)
    except ContainerRefusal:
        return None


def build_identity(scenario: Scenario, build: str) -> list[Any]:
    """What decides a measurement of a build besides settings and environment, which are the config's."""
    engine = engine_of(scenario, build)
    return [build, engine.version, engine.command, engine.extra_args, engine.faults]

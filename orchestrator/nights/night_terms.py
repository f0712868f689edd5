"""The terms of a night as its scenario states them: what counts as a regression, and what each build is. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.nights.night import Build
from orchestrator.nights.night_rules import NightRules
from orchestrator.redaction import storable
from orchestrator.scenarios.engine_build import build_of, engine_of, image_of
from orchestrator.scenarios.scenario import Scenario

_NONE = "none"


def rules_of(scenario: Scenario) -> NightRules:
    """What counts as a regression."""
    assert scenario.nightly is not None, "checked with the scenario"
    keys = scenario.nightly
    return NightRules(floors=keys.floors, confidence=keys.confidence, most_pairs=keys.most_pairs)


def night_build(scenario: Scenario, build: str, software: Mapping[str, str]) -> Build:
    """A build as the history keeps it. `software`: what its servers had installed, by name: sglang, torch, cuda, ..."""
    shown = Scenario.model_validate(storable(scenario))  # no secrets: facts are kept and printed
    told, engine = build_of(shown, build), engine_of(shown, build)
    assert told is not None, "checked with the scenario"
    image = image_of(engine.command)
    # What is not there is told as well: a flag that is added tomorrow is another build.
    facts = {
        **software,
        "engine": shown.engine.kind,
        "sglang": software.get("sglang") or engine.version or "",
        "image": image,
        "command": " ".join("IMAGE" if word == image else word for word in engine.command) or _NONE,
        "arguments": " ".join(engine.extra_args) or _NONE,
        "settings": _words(told.settings),
        "environment": _words(engine.env),
    }
    name = told.name or image or (f"SGLang {facts['sglang']}" if facts["sglang"] else build)
    return Build(name, tuple((key, value) for key, value in facts.items() if value))


def _words(told: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(told.items())) or _NONE

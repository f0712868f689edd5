"""What of a scenario may be stored: everything but the values of secrets."""

from __future__ import annotations

from typing import Any

from actors.launch import HIDDEN, redact, scrub
from orchestrator.scenario import Scenario


def storable(scenario: Scenario) -> dict[str, Any]:
    """The scenario as JSON, values of variables and flags that are named like secrets replaced by `***`."""
    stored = scenario.model_dump(mode="json")
    engine = stored["engine"]
    engine["env"] = scrub(engine["env"])
    for key in ("command", "extra_args"):
        engine[key] = list(redact(engine[key]))
    engine["flags"] = {name: list(redact(w)) if isinstance(w, list) else w for name, w in engine["flags"].items()}
    return stored


def holds_secrets(stored: dict[str, Any]) -> bool:
    """Whether a stored scenario lacks values that a run of it needs."""
    engine = stored["engine"]
    words = [*engine["env"].values(), *engine["command"], *engine["extra_args"]]
    words += [word for words in engine.get("flags", {}).values() if isinstance(words, list) for word in words]
    return any(HIDDEN in word for word in words)

"""What of a scenario may be stored: everything but the values of secrets."""

from __future__ import annotations

from typing import Any

from actors.servers.launch import HIDDEN, conceal, redact, scrub, secret_values
from orchestrator.scenarios.scenario import Scenario


def storable(scenario: Scenario) -> dict[str, Any]:
    """The scenario as JSON, values of variables and flags that are named like secrets replaced by `***`.

    A secret is also replaced where it stands again inside another word, as in a script for `sh -c`.
    """
    stored = scenario.model_dump(mode="json")
    engine = stored["engine"]
    steps = [*engine["before_start"], *engine["after_stop"]]
    words = [*engine["command"], *engine["extra_args"], *(word for step in steps for word in step["command"])]
    secrets = secret_values(words, engine["env"])
    engine["env"] = scrub(engine["env"])
    for holder, key in ((engine, "command"), (engine, "extra_args"), *((step, "command") for step in steps)):
        holder[key] = [conceal(word, secrets) for word in redact(holder[key])]
    engine["flags"] = {name: list(redact(w)) if isinstance(w, list) else w for name, w in engine["flags"].items()}
    for build in _builds(stored):
        secrets |= secret_values([*(build["command"] or ()), *build["extra_args"]], build["env"])
        build["env"] = scrub(build["env"])
        build["extra_args"] = [conceal(word, secrets) for word in redact(build["extra_args"])]
        if build["command"] is not None:
            build["command"] = [conceal(word, secrets) for word in redact(build["command"])]
    return stored


def holds_secrets(stored: dict[str, Any]) -> bool:
    """Whether a stored scenario lacks values that a run of it needs."""
    engine = stored["engine"]
    steps = [*engine.get("before_start", ()), *engine.get("after_stop", ())]
    words = [*engine["env"].values(), *engine["command"], *engine["extra_args"]]
    words += [word for step in steps for word in step["command"]]
    words += [word for words in engine.get("flags", {}).values() if isinstance(words, list) for word in words]
    for build in _builds(stored):
        words += [*build["env"].values(), *(build["command"] or ()), *build["extra_args"]]
    return any(HIDDEN in word for word in words)


def _builds(stored: dict[str, Any]) -> list[dict[str, Any]]:
    nightly = stored.get("nightly")  # no run of an earlier release has it
    return [] if nightly is None else [nightly["reference"], nightly["candidate"]]

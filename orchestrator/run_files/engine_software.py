"""What servers had installed (torch, CUDA, kernels), as rows of `trials` keep it, and over several starts. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.server_start import EngineSoftware

# What each is called where people read it.
TITLES = {
    "sglang": "SGLang", "torch": "torch", "cuda": "CUDA of torch", "hip": "HIP of torch", "triton": "triton",
    "kernels": "SGLang kernels", "flashinfer": "FlashInfer", "nccl": "NCCL",
}  # fmt: skip


def software_json(software: EngineSoftware) -> dict[str, Any]:
    return {"versions": dict(software.versions), "unknown": software.unknown}


def software_of_json(told: Any) -> EngineSoftware | None:
    """None for what an earlier release kept."""
    if not isinstance(told, Mapping):
        return None
    return EngineSoftware(tuple(sorted(told["versions"].items())), told["unknown"])


def software_of(trial: Mapping[str, Any]) -> EngineSoftware | None:
    """Of a row of `trials`; None for a start that asked nothing, or of an earlier release."""
    return software_of_json(json.loads(trial.get("software_json") or "null"))


def software_facts(trials: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Versions by name; what is not the same at all starts is told as `2.9.1 / 2.10.0`."""
    found: dict[str, set[str]] = {}
    for trial in trials:
        software = software_of(trial)
        for name, version in software.versions if software else ():
            found.setdefault(name, set()).add(version)
    return {name: " / ".join(sorted(versions)) for name, versions in sorted(found.items())}


def software_unknown(trials: Iterable[Mapping[str, Any]]) -> str:
    """Why torch is not known of any start; empty if it is."""
    asked = [software for trial in trials if (software := software_of(trial)) is not None]
    if any(not software.unknown for software in asked):
        return ""
    return "; ".join(dict.fromkeys(software.unknown for software in asked))

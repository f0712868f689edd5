"""JSON that a workload adds to its requests. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# What Specsweep sends or counts by; another value would make the numbers mean something else.
OWNED = frozenset(
    {
        "model", "prompt", "messages", "text", "input_ids", "input_embeds", "sampling_params", "stream",
        "stream_options", "max_tokens", "max_completion_tokens", "max_new_tokens", "temperature", "ignore_eos",
        "n", "best_of", "echo",
    }
)  # fmt: skip


def owned_keys(body: Mapping[str, Any]) -> list[str]:
    """The keys that a workload must not set."""
    return sorted(OWNED & set(body))


def body_text(body: Mapping[str, Any]) -> str:
    """The JSON as a part of a point's identity: independent of the order of keys, empty if there is none."""
    return json.dumps(body, sort_keys=True, separators=(",", ":")) if body else ""

"""Names of metrics as people write them: without the unit, which stands beside. Pure."""

from __future__ import annotations

import re

from orchestrator.points.metric_names import METRICS

_WORDS = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "end-to-end latency", "gpu": "GPU", "kv": "KV"}
_NAMES = {"tok_s_per_user": "speed of a user", "chunk_gap": "gap between chunks", "window_s": "window"}
# The unit ends a name, or what it is shared by does.
_UNIT = re.compile(r"_(tok_s|ms|s|rps|w|gib)(?=_per_gpu$|$)")
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def metric_title(name: str) -> str:
    """`output throughput per GPU` of `output_throughput_tok_s_per_gpu`; what is no metric stays as it is."""
    if name not in METRICS:
        return name
    for key, title in _NAMES.items():
        if name.startswith(key):
            return " ".join([title, *name.removeprefix(key).removesuffix("_ms").split("_")]).replace("  ", " ").strip()
    return " ".join(_WORDS.get(word, word) for word in _UNIT.sub("", name).split("_"))


def aim_title(aim: str) -> str:
    """`output throughput at C=1` of `output_throughput_tok_s at C=1`. Expressions stay as they were written."""
    found = _NAME.match(aim)
    if found is None or not aim[found.end() :].startswith(" at "):
        return aim
    return metric_title(found[0]) + aim[found.end():]  # fmt: skip

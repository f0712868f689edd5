"""Sides of a comparison, made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrator.exchange.compared_row import Doubt
from orchestrator.exchange.compared_side import ComparedConfig, Side
from orchestrator.exchange.run_comparison import RunComparison, compare_sides
from orchestrator.objectives.aim import PointValue
from orchestrator.points.peer_point import ImportedPoint
from orchestrator.trial import LoadLevel

C4 = LoadLevel("concurrency", 4)
CHAT = {"workloads": [{"name": "chat", "concurrency": [4], "input_tokens": 256}]}


def values(config: str, seen: Sequence[float], host: str = "h", **more: Any) -> list[PointValue]:
    return [
        PointValue(config, "chat", C4, i, {"ttft_p50_ms": x}, trial_id=f"{config}-{i}", host=host, **more)
        for i, x in enumerate(seen)
    ]


def side(name: str, seen: Sequence[PointValue], *, emulated: bool = False, **more: Any) -> Side:
    configs = {v.config_id: ComparedConfig(v.config_id, v.config_id, {}, starts=3) for v in seen}
    given: dict[str, Any] = {"configs": configs, "scenario": CHAT}
    return Side(name, "sglang", False, emulated, values=list(seen), **(given | more))


def compared(first: Side, second: Side, doubt: Doubt | None = None) -> RunComparison:
    return compare_sides(first, second, ["ttft_p50_ms"], doubt or Doubt())


def point(line: int, name: str, prompt: float, output: float, load: LoadLevel | None = C4) -> ImportedPoint:
    metrics = {"ttft_p50_ms": 90.0 + line, "prompt_tokens_mean": prompt, "output_tokens_mean": output}
    return ImportedPoint(line, name, "C=4", metrics, (), "vllm", load)

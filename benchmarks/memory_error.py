"""How far predictions of GPU memory are off, on starts of real servers whose logs told it.

    python -m benchmarks.memory_error            # the table, as in RESULTS.md
    python -m benchmarks.memory_error --detail   # every comparison from the files alone
    python -m benchmarks.memory_error --campaign # emulated starts, each predicted from those before it

`memory_starts.json` has the figures: config.json of the model, settings, and what the log said. Three predictions of
each: from the files alone ("cold"), with what was free before the load known ("host known"), and with the weights known
too, which leaves SGLang's own arithmetic of pools ("pools alone").
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from actors.emulator.profiles import DEEPSEEK_V4_FLASH
from orchestrator.memory.config_shape import model_shape
from orchestrator.memory.emulated_memory import emulated_memory_model
from orchestrator.memory.estimate import Estimate
from orchestrator.memory.memory_budget import Prediction, predict
from orchestrator.memory.memory_forecast import Forecast
from orchestrator.memory.memory_model import GpuRoom, MemoryModel, ModelFacts, memory_model
from orchestrator.outcome import Phase
from tests.fakes.emulated_start import emulated_start

FILE = Path(__file__).with_name("memory_starts.json")


@dataclass(frozen=True)
class Row:
    """One quantity of one start: predicted with its bound, and logged."""

    start: str
    what: str
    predicted: float
    error: float
    logged: float

    @property
    def off(self) -> float:
        return self.predicted - self.logged

    @property
    def share(self) -> float:
        return self.off / self.logged if self.logged else 0.0


def model_of(told: dict[str, Any], configs: dict[str, Any]) -> MemoryModel:
    """The guess from the files alone."""
    facts = ModelFacts(model_shape(configs[told["model"]]))
    return memory_model(facts, told["settings"], GpuRoom(told["gpu_gib"]), told["version"])


def rows_of(told: dict[str, Any], configs: dict[str, Any]) -> Iterator[tuple[str, Row]]:
    """(kind of prediction, row) for all that the log told."""
    logged, cold = told["logged"], model_of(told, configs)
    name = f"{told['model']}, {told['gpu']}, {told['version']}"
    if "pre" in logged:
        yield "cold", Row(name, "free before the load", cold.pre.gib, cold.pre.error_gib, logged["pre"])
    yield "cold", Row(name, "weights", cold.weights.gib, cold.weights.error_gib, logged["weights"])
    if "draft" in logged:
        yield "cold", Row(name, "draft weights", cold.draft.gib, cold.draft.error_gib, logged["draft"])
    if "pre" not in logged:
        return
    known = replace(cold, pre=Estimate(logged["pre"], 0.005))
    loaded = replace(known, weights=Estimate(logged["weights"], 0.005))
    for kind, model in (("cold", cold), ("host known", known), ("pools alone", loaded)):
        yield from ((kind, row) for row in _later(name, predict(model), logged))


def _later(name: str, prediction: Prediction, logged: dict[str, float]) -> Iterator[Row]:
    if "kv_tokens" in logged:
        yield Row(name, "KV tokens", prediction.pools.kv_tokens, prediction.kv_tokens_error, logged["kv_tokens"])
    pooled = prediction.free_after(Phase.KV_POOL)
    if "pooled" in logged and pooled is not None:
        yield Row(name, "free after the pools", pooled.gib, pooled.error_gib, logged["pooled"])
    if "ready" in logged:
        yield Row(name, "free when ready", prediction.free.gib, prediction.free.error_gib, logged["ready"])


def all_rows() -> list[tuple[str, Row]]:
    """Every comparison."""
    told = json.loads(FILE.read_text(encoding="utf-8"))
    return [row for start in told["starts"] for row in rows_of(start, told["models"])]


def summary(rows: list[tuple[str, Row]]) -> Iterator[str]:
    """One table line per quantity and kind: number, median and largest error, how many lie within their bound."""
    yield "| what | known beforehand | starts | median error | largest error | within the bound |"
    yield "|---|---|---|---|---|---|"
    for what in dict.fromkeys(row.what for _, row in rows):
        for kind in ("cold", "host known", "pools alone"):
            found = [row for k, row in rows if k == kind and row.what == what]
            if found:
                inside = sum(abs(row.off) <= row.error for row in found)
                yield f"| {what} | {kind} | {len(found)} | {_errors(what, found)} | {inside} of {len(found)} |"


def _errors(what: str, rows: list[Row]) -> str:
    if what == "KV tokens":
        shares = sorted(abs(row.share) for row in rows)
        return f"{statistics.median(shares):.2%} | {shares[-1]:.2%}"
    gib = sorted(abs(row.off) for row in rows)
    return f"{statistics.median(gib):.2f} GiB | {gib[-1]:.2f} GiB"


def detail(rows: list[tuple[str, Row]]) -> Iterator[str]:
    """Every comparison from the files alone."""
    yield "| start | what | predicted | bound | logged |"
    yield "|---|---|---|---|---|"
    for kind, row in rows:
        if kind == "cold":
            form = ",.0f" if row.what == "KV tokens" else ".2f"
            yield f"| {row.start} | {row.what} | {row.predicted:{form}} | ± {row.error:{form}} | {row.logged:{form}} |"


def campaign() -> Iterator[str]:
    """The field report's campaign on the emulator: what each start was predicted to leave free, and what it left."""
    base = {"tp_size": 4, "speculative_algorithm": "EAGLE", "speculative_num_steps": 1, "speculative_eagle_topk": 1,
            "speculative_num_draft_tokens": 2, "max_running_requests": 256}  # fmt: skip
    small = {"cuda_graph_max_bs_decode": 16}
    steps = (("0.70", {}), ("0.60", small), ("0.62", small), ("0.70", small), ("0.63", small))
    forecast = Forecast(lambda settings, version: emulated_memory_model(DEEPSEEK_V4_FLASH, settings, version), None)
    yield "| start | fraction | captured | predicted free | bound | verdict | really free | outcome |"
    yield "|---|---|---|---|---|---|---|---|"
    for number, (fraction, more) in enumerate(steps, 1):
        settings = {**base, **more, "mem_fraction_static": float(fraction)}
        told, truth = forecast.of(settings), emulated_start(DEEPSEEK_V4_FLASH, settings)
        forecast.learn(truth.past)
        captured = more.get("cuda_graph_max_bs_decode", "default")
        free = f"{told.free.gib:.2f} | ± {told.free.error_gib:.2f} | {told.verdict}"
        left, end = f"{truth.plan.available_gib:.2f}", truth.past.label or "ready"
        yield f"| {number} | {fraction} | {captured} | {free} | {left} | {end} |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--detail", action="store_true", help="every comparison from the files alone")
    parser.add_argument("--campaign", action="store_true", help="emulated starts, each predicted from those before it")
    asked, rows = parser.parse_args(), all_rows()
    for line in campaign() if asked.campaign else detail(rows) if asked.detail else summary(rows):
        print(line)  # noqa: T201


if __name__ == "__main__":
    main()

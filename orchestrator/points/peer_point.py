"""One result of another load client, in the names of our metrics. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from orchestrator.points.metric_names import METRICS
from orchestrator.trial import LoadLevel

WHOLE_TIME = "throughput is over the whole time, start-up and drain with it: lower than over a settled window"
FROM_THE_SEND = "TTFT and E2E count from the send, also where a request was due earlier"


@dataclass(frozen=True, slots=True)
class ImportedPoint:
    """`metrics` has what the result says in our units, `notes` what its words mean otherwise.

    `line`: of a file of lines, or the number of the result in the file. `level` is how much load there was, in words;
    `load` the same as a load level, None where it has none (all requests at once). `kind` is the client.
    """

    line: int
    name: str
    level: str
    metrics: Mapping[str, float]
    notes: tuple[str, ...]
    kind: str = "bench_serving"
    load: LoadLevel | None = None


def is_number(value: Any) -> TypeGuard[float]:
    """A number that is one: neither a truth value nor infinite, nor an integer that no float holds."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def known(found: Mapping[str, Any]) -> dict[str, float]:
    """Those that are numbers, and metrics of ours."""
    return {name: float(value) for name, value in found.items() if is_number(value) and name in METRICS}


def level_text(load: LoadLevel | None, most: Any = None) -> str:
    """How much load there was, in words; `most`: most requests in flight of an open loop."""
    if load is None:
        return "all at once"
    return str(load) + (f", at most C={most}" if load.open_loop and is_number(most) and most else "")


def load_level(rate: Any, most: Any) -> LoadLevel | None:
    """Of clients whose rate is a number or infinite, and whose `most` requests are in flight at once."""
    if is_number(rate) and rate > 0:
        return LoadLevel("rate", float(rate))
    return LoadLevel("concurrency", float(most)) if is_number(most) and most > 0 else None


def statistics_ms(
    document: Mapping[str, Any], times: Mapping[str, str], statistics: Mapping[str, str]
) -> dict[str, Any]:
    """Values of keys `mean_ttft_ms`, as bench_serving has them and vLLM's client took them over, in our names.

    `times` and `statistics`: their part of the name -> ours.
    """
    return {
        f"{our_time}_{our_statistic}_ms": value
        for time, our_time in times.items()
        for statistic, our_statistic in statistics.items()
        if (value := document.get(f"{statistic}_{time}_ms")) is not None
    }


def without_streaming(metrics: dict[str, float], notes: list[str]) -> None:
    """Leave out what is 0 since nothing was streamed."""
    if "ttft_mean_ms" in metrics and not metrics["ttft_mean_ms"]:
        for name in [n for n in metrics if n.startswith(("ttft", "tpot", "chunk_gap"))]:
            del metrics[name]
        notes.append("TTFT is 0: nothing streamed was seen; it and the times per token are left out")


def mapping(value: Any, *names: str) -> Mapping[str, Any]:
    """What lies below these names, empty where there is nothing."""
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def first(value: Any) -> Any:
    """The first of a list, None of an empty one or of anything else."""
    return value[0] if isinstance(value, Sequence) and not isinstance(value, str) and value else None

"""One point as tables for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from orchestrator.points.load_histogram import histogram

_STATISTICS = ("mean", "p50", "p90", "p95", "p99", "max")
_LOW_STATISTICS = ("mean", "p50", "p10", "p5", "min")
_KIND = ("requests_total", "requests_ok", "ttft_p50_ms", "ttft_p95_ms", "tpot_p50_ms", "tpot_p95_ms",
         "prompt_tokens_total", "output_tokens_total")  # fmt: skip
# Told in the first lines.
_FIRST = {"requests_total", "requests_ok", "requests_failed", "url", "valid"}


def print_point(document: Mapping[str, Any], console: Console) -> None:
    """The document of a load: failures first, then rates, distributions, and what limits their use."""
    failed, kinds = document["requests_failed"], document["errors"]
    told = f" ({', '.join(f'{kind}: {n}' for kind, n in kinds.items())})" if kinds else ""
    console.print(f"{failed} of {document['requests_total']} requests failed{told}", style="red" if failed else None)
    console.print(f"{document['requests_ok']} of {document['requests_total']} requests ok")
    for reason in document["void_reasons"]:
        console.print(escape(f"void: {reason}"), style="red", soft_wrap=True)
    for warning in document["warnings"]:
        console.print(escape(f"note: {warning}"), style="yellow", soft_wrap=True)
    for name, value in document.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and name not in _FIRST:
            console.print(f"{name:28} {value if isinstance(value, int) else number(value)}")
    console.print(f"{'state':28} {document['state']}")
    for statistics, mark in ((_STATISTICS, "p99"), (_LOW_STATISTICS, "p10")):
        _print_distributions(document, statistics, mark, console)
    if document["by_traffic"]:
        _print_kinds(document["by_traffic"], console)
    client = document["client"]
    share = "-" if client["cpu_share"] is None else f"{client['cpu_share']:.0%}"
    console.print(
        f"client: {client['processes']} process(es), {share} of a CPU each, "
        f"event-loop lag p99 {number(client['loop_lag_ms_p99'])} ms"
    )


def _print_distributions(document: Mapping[str, Any], statistics: tuple[str, ...], mark: str, console: Console) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("", *statistics, "n"):
        table.add_column(name, justify="right" if name else "left")
    for name, value in document.items():
        if isinstance(value, dict) and mark in value:
            table.add_row(name, *(number(value[key]) for key in statistics), str(value["n"]))
    if table.row_count:
        console.print(table)


def _print_kinds(kinds: Mapping[str, Mapping[str, Any]], console: Console) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("traffic", *_KIND):
        table.add_column(name, justify="left" if name == "traffic" else "right")
    for name, kind in kinds.items():
        table.add_row(escape(name), *(number(kind[key]) for key in _KIND))
    console.print(table)


def print_histograms(latencies: Mapping[str, Any], console: Console) -> None:
    """Values per request, in ms, by name."""
    for name, values in latencies.items():
        console.print(f"\n{name}")
        for line in histogram(values, "ms"):
            console.print(line, soft_wrap=True, highlight=False)


def number(value: float | None) -> str:
    """Four digits; `-` for what was not measured."""
    return "-" if value is None else f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"

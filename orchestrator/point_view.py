"""One point as a table for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from orchestrator.point_metrics import PointMetrics

_STATISTICS = ("mean", "p50", "p90", "p95", "p99", "max")
_LOW_STATISTICS = ("mean", "p50", "p10", "p5", "min")
_KIND = ("requests_total", "requests_ok", "ttft_p50_ms", "ttft_p95_ms", "tpot_p50_ms", "tpot_p95_ms",
         "prompt_tokens_total", "output_tokens_total")  # fmt: skip


def print_point(metrics: PointMetrics, document: Mapping[str, Any], console: Console) -> None:
    """Print a point; `document` is its form for machines, and may say more than the metrics. `-` is not measured."""
    console.print(f"{metrics.requests_ok} of {metrics.requests_total} requests ok, {metrics.requests_failed} failed")
    for name, value in document.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and not name.startswith("requests_"):
            console.print(f"{name:28} {number(value)}")
    console.print(f"{'state':28} {metrics.state}")
    for statistics, mark in ((_STATISTICS, "p99"), (_LOW_STATISTICS, "p10")):
        _print_distributions(document, statistics, mark, console)
    if metrics.by_traffic:
        _print_kinds(document["by_traffic"], console)
    for reason in metrics.void_reasons:
        console.print(escape(f"void: {reason}"), style="red")
    for warning in metrics.warnings:
        console.print(escape(f"note: {warning}"), style="yellow")


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


def number(value: float | None) -> str:
    """Four digits; `-` for what was not measured."""
    return "-" if value is None else f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"

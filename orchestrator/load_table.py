"""What `specsweep load` shows to people."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from orchestrator.load_histogram import histogram

# Told in the first lines or by other names.
_LEFT_OUT = {"requests_total", "requests_ok", "requests_failed", "url", "valid", "seed"}


def print_load(document: dict[str, Any], console: Console) -> None:
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
        if isinstance(value, int | float) and not isinstance(value, bool) and name not in _LEFT_OUT:
            console.print(f"{name:28} {_number(value)}")
    console.print(f"{'seed':28} {document['seed']}")
    for table in _distributions(document):
        console.print(table)
    client = document["client"]
    console.print(
        f"client: {client['processes']} process(es), {_percent(client['cpu_share'])} of a CPU each, "
        f"event-loop lag p99 {_number(client['loop_lag_ms_p99'])} ms"
    )


def _distributions(document: dict[str, Any]) -> list[Table]:
    """One table for all that have the same statistics."""
    tables: dict[tuple[str, ...], Table] = {}
    for name, value in document.items():
        if not isinstance(value, dict) or not {"n", "mean"} <= set(value):
            continue
        statistics = tuple(key for key in value if key != "n")
        if statistics not in tables:
            tables[statistics] = table = Table(box=None, pad_edge=False)
            for head in ("", *statistics, "n"):
                table.add_column(head, justify="right" if head else "left")
        tables[statistics].add_row(name, *(_number(value[key]) for key in statistics), str(value["n"]))
    return list(tables.values())


def print_histograms(latencies: dict[str, Any], console: Console) -> None:
    """Values per request, in ms, by name."""
    for name, values in latencies.items():
        console.print(f"\n{name}")
        for line in histogram(values, "ms"):
            console.print(line, soft_wrap=True, highlight=False)


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"

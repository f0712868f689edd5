"""`specsweep import-points`: results of other load clients in the names and the table of our own points."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from orchestrator.exchange.peer_file import read_peer_file
from orchestrator.fitted_table import FittedColumn, FittedTable
from orchestrator.points.point_view import number
from orchestrator.terminal import print_json

_SHOWN = ("requests_ok", "output_throughput_tok_s", "request_throughput_rps", "ttft_p50_ms", "ttft_p95_ms",
          "ttft_p99_ms", "tpot_p50_ms", "tpot_p95_ms", "e2e_p50_ms", "accept_length")  # fmt: skip


def import_and_print(path: Path, kind: str | None, *, as_json: bool, console: Console) -> None:
    """Print the points of a file of another client."""
    points = read_peer_file(path, kind)
    if as_json:
        print_json([asdict(point) for point in points], console)
        return
    names = (FittedColumn(name, "name") for name in ("line", "from", "name", "at"))
    table = FittedTable([*names, *(FittedColumn(name.replace("_", " "), "number") for name in _SHOWN)])
    for point in points:
        cells = (number(point.metrics.get(name)) for name in _SHOWN)
        table.add_row(str(point.line), point.kind, point.name, point.level, *cells)
    console.print(table)
    for note in dict.fromkeys(note for point in points for note in point.notes):
        console.print(escape(f"note: {note}"), style="yellow")

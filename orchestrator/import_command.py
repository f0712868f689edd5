"""`specsweep import-points`: results of SGLang's bench_serving in the names and the table of our own points."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from orchestrator.bench_serving import ImportedPoint, read_bench_serving_line
from orchestrator.errors import BadInput
from orchestrator.point_view import number

_SHOWN = ("requests_ok", "output_throughput_tok_s", "request_throughput_rps", "ttft_p50_ms", "ttft_p95_ms",
          "ttft_p99_ms", "tpot_p50_ms", "tpot_p95_ms", "e2e_p50_ms", "accept_length")  # fmt: skip


def read_bench_serving(path: Path) -> list[ImportedPoint]:
    """The points of a JSONL file; BadInput, with the line, for what cannot be read."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read: {error}") from None
    points = []
    for i, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            points.append(read_bench_serving_line(i, json.loads(line)))
        except json.JSONDecodeError as error:
            raise BadInput(f"{path}:{i}: not JSON: {error}; give the JSONL file of bench_serving") from None
        except BadInput as error:
            raise BadInput(f"{path}: {error}; give the JSONL file of bench_serving (--output-file)") from None
    if not points:
        raise BadInput(f"{path}: has no line; give the JSONL file of bench_serving (--output-file)")
    return points


def import_and_print(path: Path, *, as_json: bool, console: Console) -> None:
    """Print the points of a file of bench_serving."""
    points = read_bench_serving(path)
    if as_json:
        console.file.write(json.dumps([asdict(point) for point in points], indent=1) + "\n")
        return
    table = Table(box=None, pad_edge=False)
    for name in ("line", "name", "at", *_SHOWN):
        table.add_column(name, justify="left" if name in {"name", "at"} else "right")
    for point in points:
        cells = (number(point.metrics.get(name)) for name in _SHOWN)
        table.add_row(str(point.line), escape(point.name), point.level, *cells)
    console.print(table)
    for note in dict.fromkeys(note for point in points for note in point.notes):
        console.print(escape(f"note: {note}"), style="yellow")

"""`specsweep compare`: two runs, or a run and a file of another load client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from orchestrator.errors import BadInput
from orchestrator.exchange.compared_row import DEFAULT_METRICS, Doubt, Standing
from orchestrator.exchange.compared_side import Side, side_of_points
from orchestrator.exchange.comparison_report import (
    NOTHING_DIFFERS,
    NOTHING_KNOWN,
    STANDINGS,
    WORDS,
    change,
    comparison_document,
    interval,
    ordered,
    summary,
    word,
)
from orchestrator.exchange.export_command import bench_serving_lines
from orchestrator.exchange.peer_file import read_peer_file
from orchestrator.exchange.run_comparison import RunComparison, compare_sides
from orchestrator.exchange.run_side import least_near_tie, objective_metrics, run_side
from orchestrator.exchange.stored_run import StoredRun, read_run
from orchestrator.fitted_table import FittedColumn, FittedTable
from orchestrator.points.metric_names import METRICS
from orchestrator.provenance import utc_now
from orchestrator.scenarios.scenario import Scenario
from orchestrator.sglang.options import did_you_mean
from orchestrator.supported_digits import shown
from orchestrator.terminal import print_json

_OF_STARTS = ("kv_tokens", "start_s")
# Other clients give other statistics; what one of the sides lacks is left out.
_OF_PEERS = ("request_throughput_rps", "ttft_mean_ms", "ttft_p99_ms", "tpot_mean_ms", "tpot_p99_ms", "e2e_mean_ms")
_MOST_ROWS = 30
_ROW_COLUMNS = (
    FittedColumn("metric", "name"), FittedColumn("config", "name"), FittedColumn("at"), FittedColumn("first", "number"),
    FittedColumn("second", "number"), FittedColumn("change", "number"), FittedColumn("95%", "number"),
    FittedColumn("verdict"),
)  # fmt: skip
_STYLES = {Standing.WORSE: "red", Standing.BETTER: "green", Standing.SAME: "", Standing.OPEN: "dim"}


@dataclass(frozen=True, slots=True)
class CompareRequest:
    """`first` and `second` are run directories, or files of other clients. `floor` is a share, None for near_tie.

    `host_class`: a part of the name of the class to compare on, where a run has hosts of several.
    """

    first: Path
    second: Path
    metrics: tuple[str, ...] = ()
    floor: float | None = None
    as_json: bool = False
    html: Path | None = None
    md: Path | None = None
    host_class: str | None = None


def compare(request: CompareRequest, console: Console) -> RunComparison:
    """Compare, print, and write the reports that are asked for. BadInput for what cannot be compared."""
    for metric in request.metrics:
        if metric not in METRICS and metric not in _OF_STARTS:
            raise BadInput(f"--metric {metric}: there is no such metric of a point or a start{_hint(metric)}")
    found = compared(request)
    if request.html is not None or request.md is not None:
        from orchestrator.documents.report_files import write_reports

        write_reports(comparison_document(found, utc_now()), html=request.html, md=request.md)
    if request.as_json:
        print_json(found.as_json(), console)
    else:
        _print(found, console)
    return found


def _hint(metric: str) -> str:
    return did_you_mean(metric, [*METRICS, *_OF_STARTS]) or "; docs/metrics.md has them"


def compared(request: CompareRequest) -> RunComparison:
    """What the two come to; nothing is written."""
    for path in (request.first, request.second):
        if not path.exists():
            raise BadInput(f"{path}: no such file; give a run directory, or a file of another load client")
    read: list[StoredRun | Path] = [
        read_run(path) if path.is_dir() else path for path in (request.first, request.second)
    ]
    read = of_one_class(read, request.host_class)
    runs = [run for run in read if isinstance(run, StoredRun)]
    names = [one.name for one in read]
    if names[0] == names[1]:
        names = [str(request.first), str(request.second)]
    first, second = (_side(run, name, as_client=len(runs) < 2) for run, name in zip(read, names, strict=True))
    metrics: list[str] = list(request.metrics)
    if not metrics:
        metrics = [*_OF_STARTS, *DEFAULT_METRICS, *(m for run in runs for m in objective_metrics(run.scenario))]
        metrics += _OF_PEERS if len(runs) < 2 else ()
    doubt = doubt_of([run.scenario for run in runs], request.floor)
    return compare_sides(first, second, list(dict.fromkeys(metrics)), doubt)


def doubt_of(scenarios: Sequence[Scenario], floor: float | None = None) -> Doubt:
    """What the scenarios of the two runs say of differences that are none; of two values the more careful."""
    near_tie = least_near_tie(scenarios)
    return Doubt(
        floor if floor is not None else near_tie if near_tie is not None else Doubt().floor,
        max((of.search.noise for of in scenarios), default=Doubt().start_noise),
        max((of.search.host_spread for of in scenarios), default=Doubt().host_spread),
    )


def of_one_class(read: Sequence[StoredRun | Path], wanted: str | None) -> list[StoredRun | Path]:
    """Runs on hosts of several classes cut down to the class that is wanted, else to the only one that both have."""
    of_runs = [run.classes for run in read if isinstance(run, StoredRun) and run.classes]
    if not of_runs:
        alone = [run.manifest.get("host_classes") or [] for run in read if isinstance(run, StoredRun)]
        there = list(dict.fromkeys(c for classes in alone for c in classes))
        if wanted and there and not any(wanted in c for c in there):
            raise BadInput(f"--host-class {wanted}: the hosts of these runs are {'; '.join(there)}")
        return list(read)
    found = [c for c in dict.fromkeys(c for classes in of_runs for c in classes) if not wanted or wanted in c]
    if not wanted:
        one = [run.manifest.get("host_classes") or [] for run in read if isinstance(run, StoredRun) and not run.classes]
        found = [c for c in found if all(c in classes for classes in (*of_runs, *one))]
    if len(found) != 1:
        known = "; ".join(dict.fromkeys(c for classes in of_runs for c in classes))
        raise BadInput(f"--host-class {wanted or ''}: name one class of hosts, which are never averaged: {known}")
    return [run.on(found[0]) if isinstance(run, StoredRun) and run.classes else run for run in read]


def _side(read: StoredRun | Path, name: str, *, as_client: bool) -> Side:
    if isinstance(read, Path):
        return side_of_points(name, read_peer_file(read))
    return run_side(read, name, bench_serving_lines(read) if as_client else None)


def _print(found: RunComparison, console: Console) -> None:
    """Decision, what differs, who serves, the ratios, what only one has, notes."""
    verdict = WORDS[found.verdict]
    style = {"worse": "bold red", "better": "bold green"}.get(found.verdict, "bold")
    console.print(Text(f"{found.second} against {found.first}: {verdict}. {summary(found)}", style=style))
    for warning in found.warnings:
        console.print(Text(f"warning: {warning}", style="yellow"))
    _print_environment(found, console)
    for config in found.served:
        line = f"{STANDINGS[config.standing]}: {config.config}: {config.first}; now {config.second}"
        console.print(Text(line, style=_STYLES[config.standing]))
    if found.rows:
        _print_rows(found, console)
    for line in found.only:
        console.print(Text(line))
    for note in found.notes:
        console.print(Text(f"note: {note}", style="yellow"))


def _print_environment(found: RunComparison, console: Console) -> None:
    console.print()
    if not found.environment:
        told = NOTHING_KNOWN if found.of_files else NOTHING_DIFFERS
        console.print(f"What differs besides the results: {told[:1].lower()}{told[1:]}")
    deciding = [d for d in found.environment if d.deciding]
    if deciding:
        table = Table(box=None, pad_edge=False, title="What differs besides the results", title_justify="left")
        for name in ("", found.first, found.second):
            table.add_column(escape(name), overflow="fold")
        for d in deciding:
            table.add_row(escape(d.name), escape(d.first), escape(d.second))
        console.print(table)
    others = list(dict.fromkeys(d.name.split(".")[0] for d in found.environment if not d.deciding))
    if others:
        console.print(Text(f"Also other, but it moves no result: {', '.join(others)}"))
    console.print()


def _print_rows(found: RunComparison, console: Console) -> None:
    table = FittedTable(_ROW_COLUMNS)
    rows = ordered(found.rows)
    for row in rows[:_MOST_ROWS]:
        at = f"{row.workload} {row.level}" if row.level else "start"
        table.add_row(
            row.metric, row.config, at, shown(row.first), shown(row.second), change(row), interval(row) or "-",
            Text(word(row), style=_STYLES[row.standing]),
        )  # fmt: skip
    console.print(table)
    if len(rows) > _MOST_ROWS:
        console.print(f"... and {len(rows) - _MOST_ROWS} more; --json and --html have all")
    console.print()

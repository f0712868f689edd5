"""`specsweep history`: series over nights, their change points, gaps, and what people say of alarms."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from rich.console import Console
from rich.text import Text

from orchestrator.errors import BadInput
from orchestrator.fitted_table import FittedColumn, FittedTable
from orchestrator.history.change_alarms import REGRESSED_EXIT_CODE, ChangeGate, change_alarms, how_to_mark
from orchestrator.history.history_lines import (
    RECENT_NIGHTS,
    SeriesLine,
    by_urgency,
    history_lines,
    needs_attention,
)
from orchestrator.history.history_store import HistoryStore
from orchestrator.history.history_text import (
    events,
    gap_lines,
    headline,
    history_json,
    line_name,
    record_text,
    short_remark,
    too_few_text,
    value_text,
)
from orchestrator.history.night_history import History, Mark, Word
from orchestrator.nights.expected_changes import ExpectedChange, expected_changes
from orchestrator.nights.night import Verdict
from orchestrator.nights.night_evidence import series_name
from orchestrator.nights.night_text import GAP_EXIT_CODE
from orchestrator.paths import user_file
from orchestrator.plural import plural
from orchestrator.provenance import utc_now
from orchestrator.terminal import print_json, say

# Read if it is there and no other file is named.
CHANGES_FILE = Path("scenarios/CHANGES.yaml")
_MOST_NAMED = 8
# A terminal is no place for hundreds of series that are as they were, nor for a year of gaps.
_MOST_ROWS, _MOST_GAPS = 40, 10
_COLUMNS = (
    FittedColumn("series", "name"), FittedColumn("config", "name"), FittedColumn("nights", "number"),
    FittedColumn("newest"), FittedColumn("verdict"), FittedColumn("over the nights"),
)  # fmt: skip
_STYLES = {Verdict.REGRESSED: "red", Verdict.INCONCLUSIVE: "yellow", Verdict.IMPROVED: "green", Verdict.SAME: ""}


@dataclass(frozen=True, slots=True)
class HistoryRequest:
    """The command's arguments. `mark`: a night and what is said of it."""

    location: str
    metric: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    scenario: str | None = None
    since: str | None = None
    changes: Path | None = None
    html: Path | None = None
    md: Path | None = None
    mark: tuple[str, Word] | None = None
    series: str = ""
    note: str = ""
    as_json: bool = False
    fail_on_change: bool = False
    nights: int | None = None


def show_history(request: HistoryRequest, console: Console) -> int:
    """Print, write what was asked for, or mark a night. The exit code: 1 or 3 only where that is asked for."""
    store = HistoryStore.at(request.location)
    if not store.exists():
        raise BadInput(
            f"history {store.place}: there is none (no folder `nights`); give the place that "
            "`specsweep nightly --history` was given, which makes it"
        )
    expected = read_expected(request.changes)
    history = store.read()
    if request.mark is not None:
        _mark(request, store, history, console)
        return 0
    _check_names(request, history)
    if request.since:
        history = history.since(request.since)
    if request.scenario:
        history = history.of_scenario(request.scenario)
    lines = [line for line in history_lines(history, expected) if _wanted(request, line)]
    _write(request, store.place, history, lines)
    alarms = change_alarms(lines, history, request.nights or RECENT_NIGHTS)
    gate = ChangeGate(request.fail_on_change, alarms)
    code = _exit_code(gate, lines)
    if request.as_json:
        print_json({**history_json(history, lines), **gate.as_json(), "exit_code": code}, console)
        return code
    _print(history, lines, console)
    if gate.fails:
        for alarm in gate.alarms:
            say(f"changed: {alarm.line}", console, "bold red")
        say(how_to_mark(gate.alarms[0]), console)
    return code


def _exit_code(gate: ChangeGate, lines: Sequence[SeriesLine]) -> int:
    """What has no night that was measured is no pass."""
    if not gate.is_on:
        return 0
    return REGRESSED_EXIT_CODE if gate.alarms else 0 if lines else GAP_EXIT_CODE


def read_expected(file: Path | None) -> tuple[ExpectedChange, ...]:
    """Expected changes of a file; of scenarios/CHANGES.yaml, if it is there, where none is named."""
    path = file or CHANGES_FILE
    if file is None and not path.exists():
        return ()
    with user_file(f"--changes {path}", "read", absent="no such file"):
        data = path.read_bytes()
    return expected_changes(data, str(path))


def _check_names(request: HistoryRequest, history: History) -> None:
    if request.scenario and request.scenario not in history.scenarios:
        raise BadInput(f"--scenario {request.scenario}: the history has {', '.join(history.scenarios) or 'no nights'}")
    metrics = sorted({one.key.metric for night in history.nights for one in night.series})
    for pattern in request.metric:
        if metrics and not any(fnmatchcase(metric, pattern) for metric in metrics):
            raise BadInput(f"--metric {pattern}: the history has {', '.join(metrics)}")
    configs = sorted({(one.measured.label, one.key.config) for night in history.nights for one in night.series})
    for text in request.config:
        if configs and not any(_is_config(text, config, label) for label, config in configs):
            known = "; ".join(f"{label} ({config})" for label, config in configs[:_MOST_NAMED])
            more = f"; and {len(configs) - _MOST_NAMED} more" if len(configs) > _MOST_NAMED else ""
            raise BadInput(f"--config {text}: the history has {known}{more}")


def _is_config(text: str, config: str, label: str) -> bool:
    return config.startswith(text) or text in label


def _wanted(request: HistoryRequest, line: SeriesLine) -> bool:
    by_metric = not request.metric or any(fnmatchcase(line.key.metric, pattern) for pattern in request.metric)
    by_config = not request.config or any(_is_config(t, line.key.config, line.label) for t in request.config)
    return by_metric and by_config


def _mark(request: HistoryRequest, store: HistoryStore, history: History, console: Console) -> None:
    assert request.mark is not None
    name, word = request.mark
    night = history.night(name)
    if night is None:
        newest = ", ".join(n.night_id for n in history.nights[-5:]) or "none"
        raise BadInput(f"--mark {name}: names no night, or several; the newest are {newest}")
    known = {one.key.series_id for one in night.series}
    if request.series and request.series not in known:
        raise BadInput(f"--series {request.series}: is not in that night; it has {', '.join(sorted(known)) or 'none'}")
    store.mark(Mark(night.night_id, request.series, word, request.note, _user(), utc_now()))
    console.print(f"Marked {night.night_id} {word}. {record_text(store.read().alarm_record())}", markup=False)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a name for its user
        return ""


def _write(request: HistoryRequest, place: str, history: History, lines: Sequence[SeriesLine]) -> None:
    if request.html is None and request.md is None:
        return
    from orchestrator.documents.report_files import write_reports
    from orchestrator.history.history_report import history_report

    document = history_report(history, lines, place=place, made_at=utc_now())
    write_reports(document, html=request.html, md=request.md)


def _print(history: History, lines: Sequence[SeriesLine], console: Console) -> None:
    """What is new first; a table whose first rows are those to look at; then what happened when, and the gaps."""
    say(f"{plural(len(history.nights), 'night')}; {headline(lines, history)}.", console)
    ordered = by_urgency(lines)
    shown = ordered[: max(_MOST_ROWS, sum(map(needs_attention, ordered)))]
    table = FittedTable(_COLUMNS)
    for line in shown:
        verdict = line.last.verdict
        table.add_row(
            series_name(line.last), line.label or line.key.config, str(len(line.values)), value_text(line),
            Text(verdict.value, style=_STYLES[verdict]), short_remark(line),
        )  # fmt: skip
    if lines:
        console.print(table)
    if len(ordered) > len(shown):
        say(f"... and {len(ordered) - len(shown)} more, which nothing happened to of late; --json has all", console)
    said = events(lines)
    said += [f"{line_name(line)}: {text}" for line in lines for text in line.shifts]
    if gaps := gap_lines(history):
        said.append("Nights that could not be measured; none of them is a pass:")
        earlier = len(gaps) - _MOST_GAPS
        said += [f"  {text}" for text in (*([f"{earlier} earlier ones"] if earlier > 0 else []), *gaps[-_MOST_GAPS:])]
    said.append(record_text(history.alarm_record()))
    said += [text for text in (too_few_text(lines),) if text]
    said += [f"Not read: {text}" for text in history.skipped]
    said += [history.emulated] if history.emulated else []
    for text in said:
        say(text, console)

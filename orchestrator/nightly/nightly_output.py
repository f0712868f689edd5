"""What a night leaves besides the history: files for people and for CI, and what the terminal shows."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rich.console import Console

from orchestrator.documents.report_document import ReportDocument
from orchestrator.fitted_table import FittedColumn, FittedTable
from orchestrator.history.change_alarms import how_to_mark
from orchestrator.nightly.junit import junit_xml
from orchestrator.nightly.night_json import NightTold, night_json
from orchestrator.nightly.nightly_report import nightly_report
from orchestrator.nights.night import Night, Verdict
from orchestrator.nights.night_rules import NightRules
from orchestrator.nights.night_text import (
    difference_text,
    headline,
    in_order,
    pairs_text,
    series_title,
    sizes_text,
)
from orchestrator.paths import RunPaths, write_whole
from orchestrator.provenance import utc_now
from orchestrator.terminal import say

_COLUMNS = (
    FittedColumn("verdict", "name"), FittedColumn("series", "name"), FittedColumn("config", "name"),
    FittedColumn("difference"), FittedColumn("pairs"), FittedColumn("why"),
)  # fmt: skip
_SUMMARY_OF_GITHUB = "GITHUB_STEP_SUMMARY"
_STYLES = {Verdict.REGRESSED: "red", Verdict.IMPROVED: "green", Verdict.INCONCLUSIVE: "yellow", Verdict.SAME: ""}
_STANDARD_OUTPUT = Path("-")


@dataclass(frozen=True, slots=True)
class NightFiles:
    """What is asked for besides `night.json` in the run. `json` may be `-`; `summary`: else that of GitHub's job."""

    junit: Path | None = None
    summary: Path | None = None
    json: Path | None = None
    html: Path | None = None

    @property
    def own_output(self) -> bool:
        """Whether the standard output is for JSON."""
        return self.json == _STANDARD_OUTPUT


def write_night(told: NightTold, root: Path, files: NightFiles) -> list[str]:
    """Every file that was asked for; why some could not be written."""
    faults: list[str] = []
    made = _Texts(told)
    if root.is_dir():
        _write(RunPaths(root).night, made.json, faults)
    if files.own_output:
        print(made.json().decode(), end="")  # noqa: T201
    elif files.json is not None:
        _write(files.json, made.json, faults)
    if files.junit is not None:
        _write(files.junit, lambda: junit_xml(told), faults)
    if files.html is not None:
        _write(files.html, made.page, faults)
    if files.summary is not None:
        _write(files.summary, made.markdown, faults)
    elif github := os.environ.get(_SUMMARY_OF_GITHUB):
        _write(Path(github), made.markdown, faults, _append, _SUMMARY_OF_GITHUB)
    return faults


class _Texts:
    """What the files hold; made when it is asked for."""

    def __init__(self, told: NightTold) -> None:
        self._told = told

    def json(self) -> bytes:
        return json.dumps(night_json(self._told), indent=1).encode() + b"\n"

    def page(self) -> bytes:
        from orchestrator.documents.report_files import page_bytes

        return page_bytes(self._document)

    def markdown(self) -> bytes:
        from orchestrator.documents.report_files import markdown_bytes

        return markdown_bytes(self._document)

    @cached_property
    def _document(self) -> ReportDocument:
        return nightly_report(self._told, utc_now())


def _write(
    path: Path, made: Callable[[], bytes], faults: list[str], put: Callable[[Path, bytes], None] | None = None,
    name: str = "",
) -> None:  # fmt: skip
    """Whatever is wrong with one file: the others are written, and the night keeps its verdict."""
    file = f"{name} {path}".strip()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        (put or write_whole)(path, made())
    except OSError as error:
        faults.append(f"{file} cannot be written: {error.strerror or error}")
    except Exception as error:  # noqa: BLE001
        faults.append(f"{file} was not written: {type(error).__name__}: {error}")


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def show_night(told: NightTold, console: Console) -> None:
    """One line first, then what decides besides it and what is behind it; notes on the history last."""
    night = told.night
    style = "yellow" if night.verdict is None else _STYLES[night.verdict]
    console.print()
    say(headline(night), console, f"bold {style}".strip())
    if told.alarms:
        for alarm in told.alarms:
            say(f"changed: {alarm.line}", console, "bold red")
        say(how_to_mark(told.alarms[0]), console)
    if night.gap is None:
        _show_series(night, told.rules, console)
    for note in told.notes:
        say(note, console, "yellow")


def _show_series(night: Night, rules: NightRules, console: Console) -> None:
    table = FittedTable(_COLUMNS)
    for one in in_order(night.series):
        words = (one.verdict.value, series_title(one), one.measured.label, difference_text(one), pairs_text(one),
                 one.reason)  # fmt: skip
        table.add_row(*words, style=_STYLES[one.verdict])
    console.print(table)
    if sizes := sizes_text(night, rules):
        say(sizes, console)

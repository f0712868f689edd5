"""What a night leaves besides the history: files for people and for CI, and what the terminal shows."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from orchestrator.junit import junit_xml
from orchestrator.night import Night, Verdict
from orchestrator.night_rows import SERIES_COLUMNS, night_rows
from orchestrator.night_rules import NightRules
from orchestrator.night_text import (
    difference_text,
    exit_code,
    headline,
    in_order,
    pairs_text,
    series_title,
    sizes_text,
)
from orchestrator.nightly_report import nightly_report
from orchestrator.paths import write_whole

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


def write_night(
    night: Night, rules: NightRules, root: Path, files: NightFiles, seconds: float, notes: Sequence[str] = ()
) -> list[str]:
    """Every file that was asked for; why some could not be written."""
    text = json.dumps(night_json(night, seconds, notes), indent=1) + "\n"
    faults: list[str] = []
    if root.is_dir():
        _write(root / "night.json", text.encode(), faults)
    if files.own_output:
        print(text, end="")  # noqa: T201
    elif files.json is not None:
        _write(files.json, text.encode(), faults)
    if files.junit is not None:
        _write(files.junit, junit_xml(night, seconds), faults)
    document = nightly_report(night, rules, notes)
    if files.html is not None:
        from orchestrator.report_page import page_html

        _write(files.html, _encoded(page_html(document)), faults)
    told = os.environ.get(_SUMMARY_OF_GITHUB)
    if files.summary is not None or told:
        from orchestrator.report_markdown import markdown

        _append_or_write(files.summary, told, markdown(document), faults)
    return faults


def night_json(night: Night, seconds: float, notes: Sequence[str]) -> dict[str, Any]:
    """For machines: the night, and its series as the history has them."""
    rows = night_rows(night)
    shared = {name: value for name, value in rows[0].items() if name not in SERIES_COLUMNS}
    return {
        "verdict": None if night.verdict is None else night.verdict.value,
        "exit_code": exit_code(night),
        "headline": headline(night),
        **shared,
        "seconds": round(seconds, 1),
        "series": [{name: row[name] for name in SERIES_COLUMNS} for row in rows if row["series_id"]],
        "notes": list(notes),
    }


def _write(path: Path, data: bytes, faults: list[str]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
    except OSError as error:
        faults.append(f"{path} cannot be written: {error.strerror or error}")


def _encoded(text: str) -> bytes:
    """Names may hold halves of characters, which no file can."""
    return text.encode("utf-8", errors="replace")


def _append_or_write(path: Path | None, of_github: str | None, text: str, faults: list[str]) -> None:
    if path is not None:
        _write(path, _encoded(text), faults)
        return
    try:
        with Path(of_github or "").open("a", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError as error:
        faults.append(f"{_SUMMARY_OF_GITHUB} {of_github} cannot be written: {error.strerror or error}")


def show_night(night: Night, rules: NightRules, console: Console, notes: Sequence[str] = ()) -> None:
    """One line first, then what is behind it; `notes` on the history last."""
    style = "yellow" if night.verdict is None else _STYLES[night.verdict]
    console.print()
    console.print(headline(night), style=f"bold {style}".strip(), markup=False, soft_wrap=True, highlight=False)
    if night.gap is None:
        _show_series(night, rules, console)
    for note in notes:
        console.print(note, style="yellow", markup=False, soft_wrap=True, highlight=False)


def _show_series(night: Night, rules: NightRules, console: Console) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("verdict", "series", "config", "difference", "pairs", "why"):
        table.add_column(name, overflow="fold")
    for one in in_order(night.series):
        words = (one.verdict.value, series_title(one), one.measured.label, difference_text(one), pairs_text(one),
                 one.reason)  # fmt: skip
        table.add_row(*map(escape, words), style=_STYLES[one.verdict])
    console.print(table)
    if sizes := sizes_text(night, rules):
        console.print(sizes, markup=False, soft_wrap=True, highlight=False)

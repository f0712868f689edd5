"""`specsweep report`: the report of a run as a page or as Markdown; and the two that each run leaves behind."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from orchestrator.documents.report_document import ReportDocument
from orchestrator.documents.report_files import markdown_bytes, page_bytes
from orchestrator.documents.report_markdown import markdown
from orchestrator.documents.report_page import page_html
from orchestrator.paths import RunPaths, user_file, write_whole
from orchestrator.rankings.run_ranking import RunRanking, rank_run
from orchestrator.rankings.shown_ranking import shown_ranking
from orchestrator.reports.run_report import run_report


@dataclass(frozen=True)
class ReportRequest:
    """The arguments of `report`, parsed. `out`: a file, or `-` for standard output; None: in the run directory."""

    run_dir: Path
    out: str | None = None
    as_markdown: bool = False


def report(request: ReportRequest, console: Console) -> None:
    """Write or print it; BadInput for what is no run, or a file that cannot be written."""
    document = run_report(request.run_dir, shown_ranking(request.run_dir))
    if request.out == "-":
        sys.stdout.write(markdown(document) if request.as_markdown else page_html(document))
        return
    paths = RunPaths(request.run_dir)
    file = Path(request.out) if request.out else paths.report_markdown if request.as_markdown else paths.report
    named = f"--out {file}" if request.out else f"{file} (give another as --out FILE)"
    with user_file(named, "written"):
        write_whole(file, markdown_bytes(document) if request.as_markdown else page_bytes(document))
    console.print(f"Written: {file}", soft_wrap=True, markup=False, highlight=False)


def leave_reports(root: Path, ranking: RunRanking, console: Console | None) -> None:
    """Write both forms into a run directory and say so in a line (without a console: in silence).

    Whatever goes wrong is told and nothing more: a run that was measured ends as it would have without a report.
    """
    try:
        file = _leave(root, run_report(root, ranking))
        told = f"Report: {file.absolute()}"
    except Exception as error:  # noqa: BLE001
        told = f"{_not_written(error)}\nThe run has all that it needs; try again: specsweep report {root}"
    if console is not None:
        console.print(told, soft_wrap=True, markup=False, highlight=False)


def leave_report(root: Path, console: Console) -> None:
    """The same of a run that nobody has ranked, if there is one: a night."""
    if not RunPaths(root).manifest.exists():
        return
    try:
        ranking = rank_run(root)
    except Exception as error:  # noqa: BLE001 - as above
        console.print(_not_written(error), soft_wrap=True, markup=False, highlight=False)
        return
    leave_reports(root, ranking, console)


def _not_written(error: Exception) -> str:
    """What the system has against a file needs no name of a Python class."""
    why = f"{type(error).__name__}: {error}"
    if isinstance(error, OSError) and error.strerror:
        why = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return f"The report was not written: {why}"


def _leave(root: Path, document: ReportDocument) -> Path:
    paths = RunPaths(root)
    write_whole(paths.report, page_bytes(document))
    write_whole(paths.report_markdown, markdown_bytes(document))
    return paths.report

"""The command about reports."""

from __future__ import annotations

from pathlib import Path

import click

from orchestrator.terminal import console


@click.command()
@click.argument("run_dir", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--out", metavar="FILE", help="Where it goes, - to print it; default: report.html or report.md in RUN.")
@click.option("--md", "as_markdown", is_flag=True, help="Markdown, for pull requests and job summaries.")
def report(run_dir: Path, out: str | None, as_markdown: bool) -> None:
    """Write what RUN found as one HTML page that works offline and by e-mail."""
    from orchestrator.reports.report_command import ReportRequest
    from orchestrator.reports.report_command import report as report_run

    report_run(ReportRequest(run_dir, out, as_markdown), console())

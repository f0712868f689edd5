"""The command about reports."""

from __future__ import annotations

from pathlib import Path

import click

from orchestrator.cli_options import run_argument
from orchestrator.terminal import console


@click.command()
@run_argument
@click.option("--out", metavar="FILE", help="Where it goes, - to print it; default: report.html or report.md in RUN.")
@click.option(
    "--as", "form", type=click.Choice(["html", "md"]), default="html", show_default=True,
    help="md: Markdown, for pull requests and job summaries.",
)  # fmt: skip
@click.option("--md", "form", flag_value="md", hidden=True, help="As --as md.")
def report(run_dir: Path, out: str | None, form: str) -> None:
    """Write what RUN found as one HTML page.

    It works offline and by e-mail.
    """
    from orchestrator.reports.report_command import ReportRequest
    from orchestrator.reports.report_command import report as report_run

    report_run(ReportRequest(run_dir, out, form == "md"), console())

"""The commands about results beside those of one run: compare, export, import-points."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from orchestrator.cli_options import PATH, json_option, out_option, run_argument
from orchestrator.exchange.compare_cli import compare
from orchestrator.terminal import console, read_output


@click.command("import-points")
@click.argument("file", type=PATH)
@click.option(
    "--from", "kind", type=click.Choice(["vllm", "bench_serving", "guidellm", "aiperf"]),
    help="Which client wrote it; default: told by its content.",
)  # fmt: skip
@json_option
def import_points(file: Path, kind: str | None, as_json: bool) -> None:
    """Show the results of another load client as our metrics.

    Of a FILE of SGLang's bench_serving (JSON lines), vLLM's bench serve, GuideLLM or AIPerf (JSON).
    """
    from orchestrator.exchange.import_command import import_and_print

    import_and_print(file, kind, as_json=as_json, console=console())


@click.command()
@run_argument
@click.option(
    "--as", "form", type=click.Choice(["csv", "jsonl", "parquet", "bench-serving"]), default="csv", show_default=True,
    help="bench-serving: the lines that SGLang's own tool would have written of the points.",
)  # fmt: skip
@click.option(
    "--what", type=click.Choice(["points", "trials", "requests"]), default="points", show_default=True,
    help="Points with all metrics, server starts, or every request.",
)  # fmt: skip
@out_option
def export(**options: Any) -> None:
    """Write what RUN measured as a table for other programs.

    With a column for each metric and setting.
    """
    from orchestrator.exchange.export_command import ExportRequest
    from orchestrator.exchange.export_command import export as export_run

    with read_output():
        remarks = export_run(ExportRequest(**options))
    for remark in remarks:
        click.echo(f"specsweep: {remark}", err=True)
    if options["out"] is not None:
        click.echo(f"Written: {options['out']}")


EXCHANGE_COMMANDS = (compare, export, import_points)

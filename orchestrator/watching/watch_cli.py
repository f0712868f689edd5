"""The command that watches a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from orchestrator.cli_options import run_argument
from orchestrator.terminal import console, read_output


@click.command()
@run_argument
@click.option(
    "--web", type=click.IntRange(0, 65535), is_flag=False, flag_value=0, metavar="[PORT]",
    help="Serve the report as it grows, on 127.0.0.1 [default port: 8788, or any if that is taken].",
)  # fmt: skip
@click.option("--listen", metavar="ADDR", help="With --web: another address; the printed URL holds a token.")
@click.option("--once", is_flag=True, help="Tell how it stands, and end.")
@click.option("--json", "as_json", is_flag=True, help="For machines: a line whenever something has changed.")
def watch(run_dir: Path, **options: Any) -> None:
    """Watch RUN from its directory until it ends.

    Also one of another host on a shared directory. Nothing is written there, and ending the viewer never touches the
    run.
    """
    from orchestrator.watching.watch_command import WatchRequest
    from orchestrator.watching.watch_command import watch as watch_run

    with read_output():
        watch_run(WatchRequest(run_dir, **options), console())

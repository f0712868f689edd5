"""`specsweep history`: the nights that were kept."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from orchestrator.terminal import console

_PATH = click.Path(path_type=Path)


@click.command()
@click.argument("location", metavar="DIR|URI")
@click.option("--metric", multiple=True, metavar="PATTERN", help="Only these metrics, e.g. 'tpot_*'.")
@click.option("--config", multiple=True, metavar="ID|TEXT", help="Only configs of this id, or with this in the label.")
@click.option("--scenario", metavar="NAME", help="Only nights of this scenario.")
@click.option("--since", metavar="DATE", help="Only nights from this date on, e.g. 2026-11-01.")
@click.option(
    "--changes", type=_PATH, metavar="FILE", help="Expected changes; default: scenarios/CHANGES.yaml, if it is there."
)
@click.option("--html", type=_PATH, metavar="FILE", help="Write a report, one file that needs nothing else.")
@click.option("--md", type=_PATH, metavar="FILE", help="Write the report as Markdown.")
@click.option(
    "--mark", type=(str, click.Choice(["true", "false", "fixed"])), metavar="NIGHT true|false|fixed",
    help="Say what a night's alarm was; NIGHT is its id or date.",
)  # fmt: skip
@click.option("--series", default="", metavar="ID", help="With --mark: only this series; default: all that regressed.")
@click.option("--note", default="", metavar="TEXT", help="With --mark: why.")
@click.option(
    "--fail-on-change",
    is_flag=True,
    help="Exit code 1 if a series got worse in the last nights and nobody marked it; 3 if there is no night.",
)
@click.option("--nights", type=click.IntRange(min=3), metavar="N",
              help="With --fail-on-change: how many nights a change is new, default 7.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def history(since: str | None, **options: Any) -> None:
    """Show the nights that are kept in DIR.

    Every series, where it changed and what changed then, gaps, and false alarms.
    """
    import sys

    from orchestrator.errors import BadInput
    from orchestrator.history.history_command import HistoryRequest, show_history

    if since is not None and not re.fullmatch(r"\d{4}-\d{2}(-\d{2})?", since):
        raise BadInput(f"--since {since}: write a date such as 2026-11-01")
    if options["mark"] is None and (options["series"] or options["note"]):
        raise BadInput("--series and --note belong to --mark")
    if options["nights"] is not None and not options["fail_on_change"]:
        raise BadInput("--nights belongs to --fail-on-change")
    if options["fail_on_change"] and options["mark"] is not None:
        raise BadInput("--mark keeps what you found out; ask for --fail-on-change afterwards")
    sys.exit(show_history(HistoryRequest(since=since, **options), console()))

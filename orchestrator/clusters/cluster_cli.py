"""`specsweep cluster`: files for `ray up`, written and checked without any host being asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from orchestrator.cli_options import PATH, json_option


@click.group()
def cluster() -> None:
    """Write and check the file that `ray up` starts Ray by."""


@cluster.command()
@click.argument("file", type=PATH)
@json_option
def check(file: Path, as_json: bool) -> None:
    """Tell what is wrong with a cluster FILE, line by line.

    No host is asked. Exit code 2 if there are faults.
    """
    from rich.console import Console

    from orchestrator.clusters.cluster_command import check as check_file

    check_file(file, as_json=as_json, console=Console())


@cluster.command()
@click.option("--head", required=True, metavar="IP", help="The head: no GPUs needed, reached by all others.")
@click.option("--workers", default="", metavar="IP,IP", help="Hosts with GPUs; none: the head is all there is.")
@click.option("--user", required=True, metavar="NAME", help="The user that ssh logs in as.")
@click.option("--key", metavar="FILE", help="Private ssh key for all hosts; default: what ssh itself finds.")
@click.option("--python", metavar="NAME", help="Interpreter on the hosts; default: of this version, e.g. python3.11.")
@click.option(
    "-o", "--out", type=PATH, default=Path("cluster.yaml"), metavar="FILE", show_default=True,
    help="Where to write it.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def init(**options: Any) -> None:
    """Write a cluster file for hosts of your own.

    And a token for them if there is none.
    """
    from rich.console import Console

    from orchestrator.clusters.cluster_command import InitRequest
    from orchestrator.clusters.cluster_command import init as write_file

    write_file(InitRequest(**options), Console())

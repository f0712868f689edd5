"""The commands about jobs of a cluster: submit, status, logs, stop, fetch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from orchestrator.cli_options import PATH, json_option, run_argument, set_option, yes_option
from orchestrator.terminal import console, lasting_output, read_output

_address = click.option(
    "--address", metavar="http://HEAD:8265",
    help="Dashboard of the cluster; default: RAY_API_SERVER_ADDRESS, RAY_ADDRESS, else this machine's.",
)  # fmt: skip
_python = click.option("--python", metavar="PATH", default="python", show_default=True, help="Python on the head.")


@click.command()
@click.argument("scenario", type=PATH, required=False)
@_address
@set_option
@click.option("--run-dir", metavar="DIR", help="On the head; default: ~/specsweep-runs/<name>-<time>.")
@click.option("--resume", metavar="RUN", help="Continue a run by its directory on the head.")
@click.option("--wait/--no-wait", default=True, help="Follow the log to the end (default), or only submit.")
@click.option("--fetch", type=PATH, metavar="DIR", help="At the end, copy the run directory below DIR (without logs).")
@click.option("--on-hosts", is_flag=True, help="Files that the scenario names are on every host already; send none.")
@click.option("--evict", is_flag=True, help="End processes that are not ours and hold the slots' GPUs; needs --yes.")
@yes_option
@_python
def submit(**options: Any) -> None:
    """Run SCENARIO as a job of a cluster.

    It is checked here, sent with its files, and followed. The exit code is that of the run. Ctrl-C detaches; the job
    goes on.
    """
    from orchestrator.jobs.submit_command import SubmitRequest
    from orchestrator.jobs.submit_command import submit as submit_run

    with lasting_output():
        submit_run(SubmitRequest(**options), console())


@click.command()
@click.argument("job", required=False)
@_address
@json_option
def status(job: str | None, address: str | None, as_json: bool) -> None:
    """List the runs that are jobs, or tell all about one JOB."""
    from orchestrator.jobs.job_commands import show_status

    show_status(job, address, as_json=as_json, console=console())


@click.command()
@click.argument("job")
@_address
@click.option("-f", "--follow", is_flag=True, help="To its end; Ctrl-C detaches. The exit code is that of the run.")
def logs(job: str, address: str | None, follow: bool) -> None:
    """Print what JOB has written."""
    from orchestrator.jobs.job_commands import show_logs

    with read_output():
        show_logs(job, address, follow=follow, console=console())


@click.command()
@click.argument("job")
@_address
@click.option("--wait", is_flag=True, help="Until it has ended; tells what was kept.")
@click.option("--kill", is_flag=True, help="Also a job that Ray gives no time for an orderly end.")
def stop(**options: Any) -> None:
    """Ask JOB to end in order; what is measured is kept."""
    from orchestrator.jobs.job_commands import StopRequest
    from orchestrator.jobs.job_commands import stop as stop_job

    stop_job(StopRequest(**options), console())


@click.command()
@click.argument("job")
@_address
@click.option("--to", type=PATH, default=Path("runs"), show_default=True, metavar="DIR", help="Where it goes, below.")
@click.option("--logs", "with_logs", is_flag=True, help="With the logs of the servers.")
@click.option("--python", metavar="PATH", help="Python on the head; default: that of the job.")
def fetch(job: str, address: str | None, to: Path, with_logs: bool, python: str | None) -> None:
    """Copy the run directory of JOB here.

    Through the dashboard's port; `specsweep rank` reads it.
    """
    from orchestrator.jobs.fetch_command import fetch as fetch_job

    fetch_job(job, address, to, with_logs=with_logs, python=python, console=console())


@click.command(hidden=True)
@run_argument
@click.option("--logs", "with_logs", is_flag=True, help="With the logs of the servers.")
def send_run(run_dir: Path, with_logs: bool) -> None:
    """Write a run directory to the log, for `fetch`."""
    from orchestrator.jobs.run_archive import print_archive

    print_archive(run_dir, with_logs=with_logs)


JOB_COMMANDS = (submit, status, logs, stop, fetch, send_run)

"""The command line. Each command parses, calls one function, and turns errors into one message and an exit code."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from orchestrator import __version__
from orchestrator.cli_options import (
    PATH,
    address_option,
    json_option,
    objective_option,
    run_argument,
    set_option,
    yes_option,
)
from orchestrator.clusters.cluster_cli import cluster
from orchestrator.decisions.decision_cli import DECISION_COMMANDS
from orchestrator.errors import OutputFault, SpecsweepError
from orchestrator.exchange.exchange_cli import EXCHANGE_COMMANDS
from orchestrator.history.history_cli import history
from orchestrator.jobs.job_cli import JOB_COMMANDS
from orchestrator.loads.load_cli import load
from orchestrator.nightly.nightly_cli import nightly
from orchestrator.reports.report_cli import report
from orchestrator.shown_text import harmless
from orchestrator.terminal import console as _console
from orchestrator.terminal import lasting_output, own_output
from orchestrator.watching.watch_cli import watch


class _Group(click.Group):
    """Errors of ours end with their message and exit code, without a traceback."""

    def main(self, *args: Any, **options: Any) -> Any:
        try:
            with own_output():
                return super().main(*args, **options)
        except OutputFault as error:
            self._end(error)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except OutputFault:
            raise  # to `main`, where what is printed ends
        except SpecsweepError as error:
            self._end(error)
        except KeyboardInterrupt:
            click.echo("specsweep: stopped at once", err=True)
            sys.exit(130)

    def _end(self, error: SpecsweepError) -> NoReturn:
        with contextlib.suppress(OSError):  # both are in one file, whose disk is full: the code is left
            click.echo(f"specsweep: {harmless(str(error))}", err=True)
        sys.exit(error.exit_code)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="specsweep")
def main() -> None:
    """Find the SGLang speculation and memory settings that serve a model best, on every GPU host at once."""


@main.command()
@click.argument("scenario", type=PATH, required=False)
@address_option
@set_option
@click.option("--run-dir", type=PATH, metavar="DIR", help="Where the run goes; default: runs/<name>-<time>/.")
@click.option("--resume", type=PATH, metavar="RUN", help="Continue a run: only what is missing is done.")
@click.option("--reuse", type=PATH, multiple=True, metavar="RUN", help="Take over what this run measured of it.")
@click.option("--evict", is_flag=True, help="End processes that are not ours and hold the slots' GPUs; asks before.")
@yes_option
@click.option("--result", type=PATH, metavar="FILE", help="Write result.json here too, however the run ends.")
@click.option("--sealed", metavar="NAME", hidden=True, help="Instead of SCENARIO: one that `submit` left on the head.")
def run(scenario: Path | None, **options: Any) -> None:
    """Sweep SCENARIO over the cluster's slots, measure, and rank."""
    from orchestrator.sweeps.run_command import RunRequest
    from orchestrator.sweeps.run_command import run as run_scenario

    with lasting_output():
        run_scenario(RunRequest(scenario, **options), _console())


@main.command()
@click.argument("scenario", type=PATH)
@set_option
@click.option("--slots", type=click.IntRange(min=1), metavar="N", help="Slots to plan for; default: the scenario's.")
@json_option
def plan(scenario: Path, overrides: tuple[str, ...], slots: int | None, as_json: bool) -> None:
    """Show what a run of SCENARIO would do; nothing is started.

    Trials, points, their order, slots, estimated server-hours, and the GPU memory of each config.
    """
    from orchestrator.previews.plan_command import show_plan

    show_plan(scenario, overrides, slots, as_json=as_json, console=_console())


@main.command()
@click.argument("scenario", type=PATH, required=False)
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE",
    help="Override a key of the scenario; with --model: a server setting, e.g. tp_size=4.",
)  # fmt: skip
@click.option("--config", metavar="N|ID", help="Which config of the scenario: its number in the plan, or its id.")
@click.option("--model", metavar="PATH", help="Without a scenario: a model's folder, config.json or hub name.")
@click.option("--draft", metavar="PATH", help="With --model: the draft model's folder or hub name.")
@click.option(
    "--gpu-gib", type=click.FloatRange(min=1), metavar="GIB", help="GiB of one GPU, as its driver counts them."
)
@click.option("--sglang", "version", metavar="VERSION", help="With --model: whose rules hold; default: the newest.")
@json_option
def memory(**options: Any) -> None:
    """Predict the GPU memory of one server start.

    Phase by phase; nothing is started.
    """
    from orchestrator.memory.memory_command import MemoryRequest, show_memory

    show_memory(MemoryRequest(**options), _console())


@main.command()
@address_option
@click.option("--scenario", type=PATH, metavar="FILE", help="Which hosts it would use, and is its model there.")
@set_option
@json_option
def hosts(address: str | None, scenario: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """List the cluster's hosts, and what is wrong with them.

    GPUs, software, labels, who occupies what, and what would spoil a benchmark.
    """
    from orchestrator.upkeep.hosts_command import show_hosts

    show_hosts(address, scenario, overrides=overrides, as_json=as_json, console=_console())


@main.command()
@click.option("--address", metavar="auto|local|HOST:PORT", help="Ray cluster; default: a running one, else this host.")
@click.option("--dry-run", is_flag=True, help="Only list what is there.")
@click.option(
    "--run", metavar="RUN", help="Only what is left of this run: its directory, or its id as `clean` lists it."
)
@click.option("--evict", is_flag=True, help="Also end processes that are not ours and hold GPU memory; asks before.")
@yes_option
@json_option
def clean(**options: Any) -> None:
    """End what dead runs left on the hosts.

    Who holds their GPUs is told. Exit code 1 if something remains.
    """
    from orchestrator.upkeep.clean_command import CleanRequest
    from orchestrator.upkeep.clean_command import clean as clean_hosts

    if not clean_hosts(CleanRequest(**options), _console()):
        sys.exit(1)


@main.command()
@run_argument
@objective_option
@click.option("--anew", is_flag=True, help="Use nothing of what an earlier ranking computed.")
@json_option
def rank(**options: Any) -> None:
    """Rank the configs of RUN anew, and write its report.

    From the raw tables: nothing is measured. Of a night: tell its verdict again.
    """
    from orchestrator.decisions.rank_command import RankRequest
    from orchestrator.decisions.rank_command import rank as rank_run

    rank_run(RankRequest(**options), _console())


@main.command()
@click.argument("logs", metavar="LOG...|RUN", nargs=-1, required=True)
@click.option(
    "--exit-code",
    type=int,
    metavar="N",
    help="How the server ended, below 0 by that signal; left out: it may be alive.",
)
@json_option
def diagnose(logs: tuple[str, ...], exit_code: int | None, as_json: bool) -> None:
    """Tell why a server died, and what to change.

    From its LOG (- for standard input; .gz, .zst). Several logs are those of one start: the first cause among them is
    told. RUN: all failed starts of a run.
    """
    from orchestrator.diagnosing.diagnose_command import show_diagnosis

    show_diagnosis(logs, exit_code, as_json=as_json, console=_console())


@main.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def emulator(arguments: tuple[str, ...]) -> None:
    """Run a stand-in for an SGLang server, without a GPU.

    It has SGLang's own flags.
    """
    from actors.emulator.__main__ import main as emulate

    emulate(list(arguments))


@main.command()
def schema() -> None:
    """Print the JSON Schema of a scenario, for editors."""
    import json

    from orchestrator.scenarios.scenario import json_schema

    click.echo(json.dumps(json_schema(), indent=2))


for command in (*DECISION_COMMANDS, *EXCHANGE_COMMANDS, *JOB_COMMANDS, cluster, history, load, nightly, report, watch):
    main.add_command(command)

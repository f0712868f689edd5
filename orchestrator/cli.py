"""The command line. Each command parses, calls one function, and turns errors into one message and an exit code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from orchestrator import __version__
from orchestrator.cluster_cli import cluster
from orchestrator.decision_cli import DECISION_COMMANDS
from orchestrator.exchange_cli import EXCHANGE_COMMANDS
from orchestrator.history_cli import history
from orchestrator.job_cli import JOB_COMMANDS
from orchestrator.nightly_cli import nightly
from orchestrator.report_cli import report
from orchestrator.shown_text import harmless
from orchestrator.terminal import console as _console
from orchestrator.terminal import print_json
from orchestrator.watch_cli import watch

SCENARIO = click.Path(path_type=Path)


class _Group(click.Group):
    """Errors of ours end with their message and exit code, without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        from orchestrator.errors import SpecsweepError

        try:
            return super().invoke(ctx)
        except SpecsweepError as error:
            click.echo(f"specsweep: {harmless(str(error))}", err=True)
            sys.exit(error.exit_code)
        except KeyboardInterrupt:
            click.echo("specsweep: stopped at once", err=True)
            sys.exit(130)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="specsweep")
def main() -> None:
    """Find the SGLang speculation and memory settings that serve a model best, on every GPU host at once."""


@main.command()
@click.argument("scenario", type=SCENARIO, required=False)
@click.option("--address", metavar="auto|local|HOST:PORT", help="Ray cluster; default: a running one, else embedded.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key, e.g. measure.repeats=3.")
@click.option("--run-dir", type=SCENARIO, help="Where the run goes; default runs/<name>-<time>/.")
@click.option("--resume", type=SCENARIO, metavar="RUN", help="Continue a run: only what is missing is done.")
@click.option("--reuse", type=SCENARIO, multiple=True, metavar="RUN", help="Take over what this run measured of it.")
@click.option("--evict", is_flag=True, help="End processes that are not ours and hold the slots' GPUs; asks before.")
@click.option("--yes", is_flag=True, help="With --evict: do not ask.")
@click.option("--result", type=SCENARIO, metavar="FILE", help="Write result.json here too, however the run ends.")
@click.option("--sealed", metavar="NAME", hidden=True, help="Instead of SCENARIO: one that `submit` left on the head.")
def run(scenario: Path | None, **options: Any) -> None:
    """Sweep SCENARIO over the cluster's slots, measure, and rank."""
    from orchestrator.run_command import RunRequest
    from orchestrator.run_command import run as run_scenario

    run_scenario(RunRequest(scenario, **options), _console())


@main.command()
@click.argument("scenario", type=SCENARIO)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of the scenario.")
@click.option("--slots", type=click.IntRange(min=1), help="Number of slots to plan for; default from the scenario.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def plan(scenario: Path, overrides: tuple[str, ...], slots: int | None, as_json: bool) -> None:
    """Show trials, points, order, slots and estimated server-hours of SCENARIO; nothing is started."""
    from orchestrator.plan_command import show_plan

    show_plan(scenario, overrides, slots, as_json=as_json, console=_console())


@main.command()
@click.argument("scenario", type=SCENARIO, required=False)
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE",
    help="Override a key of the scenario; with --model: a server setting, e.g. tp_size=4.",
)  # fmt: skip
@click.option("--config", metavar="N|ID", help="Which config of the scenario: its number in the plan, or its id.")
@click.option("--model", metavar="PATH", help="Without a scenario: a model's folder, config.json or hub name.")
@click.option("--draft", metavar="PATH", help="With --model: the draft model's folder or hub name.")
@click.option("--gpu-gib", type=click.FloatRange(min=1), help="GiB of one GPU, as its driver counts them.")
@click.option("--sglang", "version", metavar="VERSION", help="With --model: whose rules hold; default the newest.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def memory(**options: Any) -> None:
    """Predict the GPU memory of one server start, phase by phase; nothing is started."""
    from orchestrator.memory_command import MemoryRequest, show_memory

    show_memory(MemoryRequest(**options), _console())


@main.command()
@click.option("--address", metavar="auto|local|HOST:PORT", help="Ray cluster; default: a running one, else embedded.")
@click.option("--scenario", type=SCENARIO, metavar="FILE", help="Which hosts it would use, and is its model there.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of the scenario.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def hosts(address: str | None, scenario: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """List the cluster's hosts: GPUs, software, labels, who occupies what, and what is wrong for a benchmark."""
    from orchestrator.hosts_command import show_hosts

    show_hosts(address, scenario, overrides=overrides, as_json=as_json, console=_console())


@main.command()
@click.option("--address", metavar="auto|local|HOST:PORT", help="Ray cluster; default: a running one, else this host.")
@click.option("--dry-run", is_flag=True, help="Only list what is there.")
@click.option(
    "--run", metavar="RUN", help="Only what is left of this run: its directory, or its id as `clean` lists it."
)
@click.option("--evict", is_flag=True, help="Also end processes that are not ours and hold GPU memory; asks before.")
@click.option("--yes", is_flag=True, help="With --evict: do not ask.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def clean(**options: Any) -> None:
    """End what dead runs left on the hosts, and tell who holds their GPUs; exit code 1 if something remains."""
    from orchestrator.clean_command import CleanRequest
    from orchestrator.clean_command import clean as clean_hosts

    if not clean_hosts(CleanRequest(**options), _console()):
        sys.exit(1)


@main.command()
@click.option("--url", required=True, help="Base URL of the running server, e.g. http://127.0.0.1:30000.")
@click.option(
    "--api", type=click.Choice(["auto", "generate", "completions", "chat"]), default="auto", show_default=True,
    help="auto: /generate where it is SGLang, else /v1/completions.",
)  # fmt: skip
@click.option("--model", help="Model name for the OpenAI APIs; default: the first that the server lists.")
@click.option("--concurrency", type=click.IntRange(min=1), help="Closed loop: requests in flight (default 1).")
@click.option("--request-rate", type=float, metavar="R", help="Open loop: requests per second.")
@click.option("--max-concurrency", type=click.IntRange(min=1), help="Open loop: most requests in flight.")
@click.option("--trace-speed", type=float, metavar="X", help="Open loop: replay a trace X times as fast.")
@click.option(
    "--arrival", type=click.Choice(["poisson", "constant", "gamma"]), help="Open loop: gaps (default poisson).",
)  # fmt: skip
@click.option("--burstiness", type=float, metavar="B", help="Shape of gamma gaps: 1 is Poisson, less is burstier.")
@click.option("--ramp-s", type=float, default=0.0, help="Seconds in which the load grows from nothing.")
@click.option("--requests", type=click.IntRange(min=1), help="Measured requests.")
@click.option("--duration-s", type=float, help="Measured seconds (default 30, without --requests).")
@click.option("--warmup-requests", type=click.IntRange(min=0), help="Not counted (default: one a slot and 2 s).")
@click.option("--warmup-s", type=float, help="Or: seconds of load that are not counted.")
@click.option("--dataset", default="random_text", show_default=True, metavar="FILE|KIND", help="As in a scenario.")
@click.option("--input-tokens", type=click.IntRange(min=1), default=256, show_default=True)
@click.option("--output-tokens", type=click.IntRange(min=1), default=256, show_default=True)
@click.option("--shared-prefix-tokens", type=click.IntRange(min=0), default=0, help="Of the input, the same for all.")
@click.option("--temperature", type=float, default=0.0, show_default=True)
@click.option("--slo", metavar="ttft_ms=..,tpot_ms=..", help="Limits per request, for goodput.")
@click.option("--header", multiple=True, metavar="NAME=VALUE", help="Sent with every request; may be repeated.")
@click.option("--api-key-env", metavar="VAR", help="Environment variable that holds the server's API key.")
@click.option("--processes", type=click.IntRange(1, 64), metavar="N", help="Share the load (default 1).")
@click.option("--seed", type=click.IntRange(min=0), help="Repeat exactly these prompts; default: fresh ones.")
@click.option("--timeout-s", type=float, default=600.0, show_default=True, help="Longest time without progress.")
@click.option("--tokenizer", metavar="DIR", help="Counts the tokens of prompts; default: the server's count of one.")
@click.option("--out", type=SCENARIO, metavar="DIR", help="Keep the requests (Parquet), the result and the client.")
@click.option("--histogram", is_flag=True, help="Show TTFT, TPOT and E2E as histograms.")
@click.option("--export-bench-serving", type=SCENARIO, metavar="FILE", help="Append a line as bench_serving writes it.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def load(**options: Any) -> None:
    """Load one running endpoint (SGLang or OpenAI-compatible) and print the metrics."""
    from orchestrator.load_command import load_and_print
    from orchestrator.load_request import LoadRequest

    load_and_print(LoadRequest(**options), _console())


@main.command()
@click.argument("run_dir", metavar="RUN", type=SCENARIO)
@click.option("--objective", metavar="NAME", help="Only this objective.")
@click.option("--anew", is_flag=True, help="Use nothing of what an earlier ranking computed.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def rank(run_dir: Path, objective: str | None, anew: bool, as_json: bool) -> None:
    """Rank the configs of RUN from its raw tables, and write its report anew."""
    from orchestrator.ranking_table import print_rankings
    from orchestrator.report_command import leave_reports
    from orchestrator.run_ranking import only_objective, rank_run

    ranked = rank_run(run_dir, anew=anew)
    result = only_objective(ranked, objective)
    if as_json:
        print_json(result.as_json(), _console())
    else:
        print_rankings(result, _console())
    leave_reports(run_dir, ranked, None if as_json else _console())


@main.command()
@click.argument("logs", metavar="LOG...|RUN", nargs=-1, required=True)
@click.option("--exit-code", type=int, help="How the server ended, below 0 by that signal; left out: it may be alive.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def diagnose(logs: tuple[str, ...], exit_code: int | None, as_json: bool) -> None:
    """Tell why a server died, from its LOG (- for standard input; .gz, .zst), and what to change.

    Several logs are those of one start: the first cause among them is told. RUN: all failed starts of a run.
    """
    from orchestrator.diagnose_command import show_diagnosis

    show_diagnosis(logs, exit_code, as_json=as_json, console=_console())


@main.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def emulator(arguments: tuple[str, ...]) -> None:
    """Run a stand-in for an SGLang server, with SGLang's own flags, without a GPU."""
    from actors.emulator.__main__ import main as emulate

    emulate(list(arguments))


@main.command()
def schema() -> None:
    """Print the JSON Schema of a scenario, for editors."""
    import json

    from orchestrator.scenario import json_schema

    click.echo(json.dumps(json_schema(), indent=2))


for command in (*DECISION_COMMANDS, *EXCHANGE_COMMANDS, *JOB_COMMANDS, cluster, history, nightly, report, watch):
    main.add_command(command)

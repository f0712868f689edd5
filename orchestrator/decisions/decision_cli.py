"""The commands about what was decided: explain, deploy, verify, reuse."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from orchestrator.cli_options import (
    PATH,
    address_option,
    host_class_option,
    json_option,
    objective_option,
    out_option,
    run_argument,
    set_option,
)
from orchestrator.terminal import console, lasting_output

_objective = click.option("--objective", metavar="NAME", help="Which ranking; needed where their winners differ.")


@click.command()
@run_argument
@objective_option
@click.option(
    "--trace", "traces", type=PATH, multiple=True, metavar="FILE|FOLDER",
    help="Profiler traces of measure.profile, copied from the server's host; may be repeated.",
)  # fmt: skip
@json_option
def explain(run_dir: Path, objective: str | None, traces: tuple[Path, ...], as_json: bool) -> None:
    """Tell why each winner of RUN won.

    What it gave up, what room is left, and what would change the pick.
    """
    from orchestrator.decisions.explain_command import show_explanation

    show_explanation(run_dir, objective, traces, as_json=as_json, console=console())


@click.command()
@run_argument
@_objective
@host_class_option
@click.option("--config", metavar="ID", help="Another config than the winner, by its id or the beginning of it.")
@click.option(
    "--as", "form", type=click.Choice(["command", "systemd", "compose", "k8s", "yaml"]), default="command",
    show_default=True, help="yaml: a file for SGLang's --config.",
)  # fmt: skip
@click.option(
    "--host", default="0.0.0.0", show_default=True, metavar="ADDR", help="Address that the server listens on."
)
@click.option("--port", type=click.IntRange(1, 65535), default=30000, show_default=True, metavar="N", help="Its port.")
@click.option(
    "--image", metavar="IMAGE", help="For compose and k8s; default: that of the run, else lmsysorg/sglang:v<version>."
)
@click.option(
    "--program", metavar="WORDS", help="Words before the flags, e.g. '/opt/sglang/bin/python -m sglang.launch_server'."
)
@click.option("--name", metavar="NAME", help="Of the service; default: scenario and objective.")
@out_option
def deploy(program: str | None, **options: Any) -> None:
    """Write the winner of RUN in the form that you deploy.

    As a command, a systemd unit, a Compose file, Kubernetes manifests, or a file for SGLang's --config.
    """
    from orchestrator.deployments.deploy_command import DeployRequest
    from orchestrator.deployments.deploy_command import deploy as deploy_run

    words = _words(program) if program is not None else None
    text, warnings = deploy_run(DeployRequest(program=words, **options))
    for warning in warnings:
        click.echo(f"specsweep: {warning}", err=True)
    if options["out"] is None:
        click.echo(text, nl=False)
    else:
        click.echo(f"Written: {options['out']}")


def _words(program: str) -> tuple[str, ...]:
    from orchestrator.errors import BadInput

    try:
        words = tuple(shlex.split(program))
    except ValueError as error:
        raise BadInput(f"--program {program!r}: {error}") from None
    if not words:
        raise BadInput("--program: names no program")
    return words


@click.command()
@run_argument
@_objective
@host_class_option
@click.option("--config", metavar="ID", help="Verify this config instead of the winner.")
@click.option(
    "--present", metavar="FILE|'NAME=VALUE ...'",
    help="What you serve with now, measured as well: settings, or a YAML file of them.",
)  # fmt: skip
@click.option(
    "--repeats",
    type=click.IntRange(min=2),
    default=5,
    show_default=True,
    metavar="N",
    help="Fresh starts of each config.",
)
@address_option
@click.option("--scenario", type=PATH, metavar="FILE", help="Needed if the run's scenario holds secrets.")
@click.option(
    "--run-dir", "out", type=PATH, metavar="DIR",
    help="Where the verification goes; default: runs/<name>-verify-<time>/.",
)  # fmt: skip
@click.option("--judge", type=PATH, metavar="RUN2", help="Measure nothing: judge this verification of RUN.")
@json_option
def verify(**options: Any) -> None:
    """Measure the winner of RUN again before you deploy it.

    Beside its runner-up, and what you serve with now.

    Exit codes: 0 confirmed, 4 refuted, 5 not told apart; 1 nothing could be judged, 2 bad input, 3 no cluster.
    """
    from orchestrator.decisions.head_to_head import EXIT_CODES
    from orchestrator.decisions.verify_command import VerifyRequest
    from orchestrator.decisions.verify_command import verify as verify_run

    with lasting_output():
        verdict = verify_run(VerifyRequest(**options), console())
    sys.exit(EXIT_CODES[verdict])


@click.command()
@click.argument("scenario", type=PATH)
@click.option(
    "--runs", type=PATH, default=Path("runs"), show_default=True, metavar="DIR", help="Folder of runs to look through."
)
@set_option
@json_option
def reuse(scenario: Path, runs: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """List earlier runs that measured some of SCENARIO.

    `run --reuse RUN` takes it over.
    """
    from orchestrator.run_files.reuse_command import show_reusable

    show_reusable(scenario, overrides, runs, as_json=as_json, console=console())


DECISION_COMMANDS = (explain, deploy, verify, reuse)

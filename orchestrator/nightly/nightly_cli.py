"""`specsweep nightly`: the command line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from orchestrator.terminal import console, lasting_output

_PATH = click.Path(path_type=Path)


@click.command()
@click.argument("scenario", type=_PATH, required=False)
@click.option(
    "--history",
    metavar="DIR|URI",
    help="Where nights are kept: a folder, s3://, gs://, file://, ...; only --self-test does without.",
)
@click.option("--reference-image", metavar="IMAGE", help="Instead of nightly.reference.image.")
@click.option("--candidate-image", metavar="IMAGE", help="Instead of nightly.candidate.image: tonight's.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key, e.g. nightly.pairs=4.")
@click.option("--address", metavar="auto|local|HOST:PORT", help="Ray cluster; default: a running one, else embedded.")
@click.option("--wait", "wait_s", type=click.FloatRange(min=0, min_open=True), metavar="S",
              help="Wait so long for a free slot (timeouts.cluster_s); then the night is a gap.")  # fmt: skip
@click.option("--run-dir", type=_PATH, metavar="DIR", help="Where it goes; default: runs/<name>-night-<time>/.")
@click.option("--resume", type=_PATH, metavar="RUN", help="Continue a night that was stopped.")
@click.option("--changes", type=_PATH, metavar="FILE",
              help="Expected changes; default: scenarios/CHANGES.yaml, if it is there.")  # fmt: skip
@click.option("--fail-on-change", is_flag=True,
              help="Exit code 1 also for a new change point of the history that nobody marked.")  # fmt: skip
@click.option("--self-test", is_flag=True, help="The reference against itself, which must come out the same.")
@click.option("--junit", type=_PATH, metavar="FILE", help="JUnit XML: a testcase a series.")
@click.option("--summary", type=_PATH, metavar="FILE", help="Markdown; default: $GITHUB_STEP_SUMMARY, if it is set.")
@click.option("--html", type=_PATH, metavar="FILE", help="The report as one page.")
@click.option("--json", "as_json", type=_PATH, metavar="FILE|-", help="For machines; night.json in the run has it too.")
def nightly(junit: Path | None, summary: Path | None, html: Path | None, as_json: Path | None, **options: Any) -> None:
    """Measure two builds in pairs: did the candidate regress?

    Exit codes: 0 same or improved, 1 regressed, 2 bad input, 3 inconclusive, or a gap: it could not be measured.
    """
    from orchestrator.nightly.nightly_command import NightRequest
    from orchestrator.nightly.nightly_command import nightly as run_night
    from orchestrator.nightly.nightly_output import NightFiles

    files = NightFiles(junit, summary, as_json, html)
    with lasting_output():
        code = run_night(NightRequest(files=files, **options), console(stderr=files.own_output))
    sys.exit(code)

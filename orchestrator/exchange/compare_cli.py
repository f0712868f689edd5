"""The command that compares two runs."""

from __future__ import annotations

import sys
from typing import Any

import click

from orchestrator.cli_options import PATH, host_class_option, json_option
from orchestrator.terminal import console

EXIT_CODES = {"worse": 1, "mixed": 1, "nothing": 3}


@click.command()
@click.argument("first", metavar="RUN_A", type=PATH)
@click.argument("second", metavar="RUN_B", type=PATH)
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="Only this metric; may be repeated.")
@click.option(
    "--floor", type=click.FloatRange(0, 0.5), metavar="SHARE",
    help="Differences below it do not matter; default: the smallest near_tie of the objectives, else 0.02.",
)  # fmt: skip
@host_class_option
@click.option("--exit-code", is_flag=True, help="End with 1 if anything is worse, 3 if nothing could be compared.")
@click.option("--html", type=PATH, metavar="FILE", help="Write a report as one HTML file.")
@click.option("--md", type=PATH, metavar="FILE", help="Write a report as Markdown.")
@json_option
def compare(exit_code: bool, **options: Any) -> None:
    """Compare two runs: environment, who serves, every ratio.

    RUN_B against RUN_A, each ratio with its interval. Either may be a file of vLLM's bench serve, SGLang's
    bench_serving, GuideLLM or AIPerf instead of a run.
    """
    from orchestrator.exchange.compare_command import CompareRequest
    from orchestrator.exchange.compare_command import compare as compare_runs

    found = compare_runs(CompareRequest(**options), console())
    if exit_code:
        sys.exit(EXIT_CODES.get(found.verdict, 0))
